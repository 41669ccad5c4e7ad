"""What `status` says about companions: how far each table beside a copy is, and why it does not go on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from lakeingest.config import Config
from lakeingest.config.companions import CHANGELOG_KEY, HISTORY_KEY, TRANSACTIONS_KEY
from lakeingest.config.formats import table_name
from lakeingest.core.companions.companion import SUFFIXES, Standing, companion_of, is_companion, read_to_of
from lakeingest.core.companions.history_table import history_id
from lakeingest.core.companions.transaction_list import transactions_table
from lakeingest.core.figures.shown import Shown
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_companions
from lakeingest.lake.preflight import Copies, copies
from lakeingest.lake.target import Staged
from lakeingest.state.companions import read_companions
from lakeingest.state.stopped import COMPANIONS, Stopped, StoppedTables


@dataclass(frozen=True, slots=True)
class CompanionStatus:
    """The state of a companion of a copy, or of the list of transactions.

    `companion`: the key of pipeline.yml that asks for it. `target`: its name or folder in the lake. `state`: `not
    begun`; `stopped` if it could not be written, or cannot be read; `complete` if it has everything that readers of the
    copy see; otherwise `behind`. `read_to`: the position in the changelog up to which it goes; None if it is not begun,
    or if its position cannot be read. `stopped`: why; None if it is not stopped.
    """

    companion: str
    target: str
    state: str
    read_to: str | None = None
    stopped: Stopped | None = None

    def __str__(self) -> str:
        """The companion and its state, for a cell of a table."""
        error = "" if self.stopped is None else f", {self.stopped.error}"
        return f"{self.companion}: {self.state}{error}"

    def notes(self, name: str) -> Iterator[str]:
        """A note if the companion lacks something. `name`: that of the companion's table."""
        upto = "" if self.read_to is None else f" up to {self.read_to}"
        if self.stopped is not None:
            yield f"{name}: {self.target} ({self.companion}) goes{upto or ' nowhere'}, and not on: {self.stopped}"
        elif self.state == "behind":
            yield f"{name}: {self.target} ({self.companion}) goes{upto}, and lacks what is published since"


def wanted(config: Config, table: TableId) -> Iterator[tuple[str, TableId]]:
    """The companions that pipeline.yml asks for: of each, the key that asks for it, and its table."""
    if config.changelog.table:
        yield CHANGELOG_KEY, companion_of(table, "changelog")
    if config.tables.history_of(table, config.history) == "scd2":
        yield HISTORY_KEY, history_id(table)


def without_companions(config: Config, tables: Iterable[TableId]) -> set[TableId]:
    """The tables, without those that are companions of copies in the lake."""
    all_tables = set(tables)
    # only tables with such a name can be companions, so the lake is asked about no others
    named_so = {table for table in all_tables if table.name.endswith(tuple(f"__{suffix}" for suffix in SUFFIXES))}
    found = copies(open_companions(config), named_so).staged if named_so else {}
    return all_tables.difference(table for table, staged in found.items() if is_companion(staged.progress))


@dataclass(frozen=True, slots=True)
class CompanionsInLake:
    """What the lake and the state folder say about the companions of some copies."""

    config: Config
    _found: Copies
    _noted: Mapping[tuple[str, TableId], Standing]
    _stopped: Mapping[TableId, Stopped]

    @classmethod
    def of(cls, config: Config, tables: Iterable[TableId]) -> Self:
        """Look for the companions of these tables, and for the list of transactions, if pipeline.yml asks for them."""
        names = [name for table in tables for _, name in wanted(config, table)]
        if config.changelog.transactions is not None:
            names.append(transactions_table(config.changelog.transactions).table)
        if not names:
            return cls(config, Copies(), {}, {})
        state = state_of(config)
        stopped = StoppedTables(state, COMPANIONS).read_all(names)
        return cls(config, copies(open_companions(config), names), read_companions(state), stopped)

    def beside(self, table: TableId, staged: Staged | None, shown: Shown | None) -> tuple[CompanionStatus, ...]:
        """The companions of a copy; none if it was never published.

        `staged`: the copy's last commit. `shown`: the state of the copy that readers see.
        """
        if staged is None or staged.published is None:
            return ()
        return tuple(self._status(key, name, table, staged, shown) for key, name in wanted(self.config, table))

    @property
    def listing(self) -> CompanionStatus | None:
        """The list of transactions; None if pipeline.yml does not ask for it. Its state is never `behind`."""
        database = self.config.changelog.transactions
        if database is None:
            return None
        name = transactions_table(database).table
        return self._status(TRANSACTIONS_KEY, name, name, None, None)

    def _status(
        self, key: str, name: TableId, of: TableId, copy: Staged | None, shown: Shown | None
    ) -> CompanionStatus:
        """The state of the companion `name` of the table `of`. Without a `copy`, the companion is never behind."""
        target = table_name(self.config.target, name)
        stopped = self._stopped.get(name)
        staged, refused = self._found.staged.get(name), self._found.refused.get(name)
        if staged is None or not is_companion(staged.progress):
            if stopped is None and refused is not None:
                stopped = Stopped.of(name, refused)
            return CompanionStatus(key, target, "not begun" if stopped is None else "stopped", stopped=stopped)
        own = read_to_of(staged.progress)
        standing = None if own is None else Standing(staged.version, own).as_noted(self._noted.get((key, of)))
        read_to = None if standing is None else standing.read_to
        position = None if shown is None else shown.position
        # complete: it was compared with the version that readers see, or goes at least up to what they see
        is_of_version = standing is not None and copy is not None and copy.visible and standing.of == copy.published
        reaches = read_to is not None and position is not None and read_to.place >= position.place
        is_complete = copy is None or is_of_version or reaches
        state = "complete" if is_complete else "behind"
        if stopped is not None:
            state = "stopped"
        return CompanionStatus(key, target, state, None if read_to is None else str(read_to), stopped)
