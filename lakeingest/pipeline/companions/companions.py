"""When the companions of copies are written, where each goes on, and what the spool keeps for them.

After each publish, a companion gets the parts of the changelog from its own last commit on, up to the place as of which
readers see the copy. If it cannot be written, this is reported and tried again; neither the run nor the table stops.
Until the companion is written, the archive of the spool keeps the changes that the companion has still to read, for
longer than `changelog.keep` if need be. If these changes are lost nevertheless, such as with the state folder, the
companion begins anew, and says so in its rows.

A quiet table needs no commit: the state folder notes that its companion is as of a later place (`state.companions`).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.companion import Standing
from lakeingest.core.companions.transaction_list import complete_to
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChangelogGone, LakeIngestError, LeaseLost, NotOurTable, StorageFailed, UnsupportedTable
from lakeingest.lake.formats import open_versions
from lakeingest.lake.versions import Versions
from lakeingest.pipeline.changelog.shown import ShownChangelog
from lakeingest.pipeline.companions.companion import Companion, ListOfAll, Reading
from lakeingest.pipeline.events import Undelivered
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.readers import Reader, reading
from lakeingest.spool.spool import Spool
from lakeingest.state.companions import read_companions, read_tidied, store_companions
from lakeingest.state.stopped import COMPANIONS, Stopped, StoppedTables

RETRY_SECONDS = 60.0  # after an error of a companion
Name = tuple[str, TableId]  # the key of the companion's kind, and the table of the source


@dataclass(slots=True)
class Companions:
    """`run.companion_tables.CompanionTables`, for these kinds of companions. `copied`: the tables of the run.

    `listing`: a table about the companions of the first kind; None if there is none. `takes_all`: `copied` has all
    tables that the pipeline updates.
    """

    edges: Edges
    kinds: Sequence[Companion]
    copied: Mapping[TableId, TableRun]
    listing: ListOfAll | None = None
    takes_all: bool = True
    _standings: dict[Name, Standing] = field(default_factory=dict, init=False)
    _noted: dict[Name, Standing] = field(default_factory=dict, init=False)  # as the state folder has them
    _loaded: set[Name] = field(default_factory=set, init=False)  # those whose last commit this run knows
    _seen: set[Name] = field(default_factory=set, init=False)  # those that this run has looked at
    _behind: set[Name] = field(default_factory=set, init=False)  # those that lack something, or may lack something
    _changelogs: dict[TableId, ShownChangelog] = field(default_factory=dict, init=False)
    _versions: Versions | None = field(default=None, init=False)
    _not_before: dict[Name, float] = field(default_factory=dict, init=False)  # by the monotonic clock
    _must_note: bool = field(default=False, init=False)
    _held: ExitStack = field(default_factory=ExitStack, init=False)  # the note of `_reader` for the archive
    _reader: Reader | None = field(default=None, init=False)
    _stopped: StoppedTables = field(init=False)
    _dropped: set[Name] | None = field(default=None, init=False)  # noted, but not in the lake; None: not looked
    _tidied: date | None = field(default=None, init=False)  # the day (UTC) on which all were tidied
    _tidying: date | None = field(default=None, init=False)  # the day (UTC) on which `_looked_at` were
    _looked_at: set[Name] = field(default_factory=set, init=False)  # those that were tidied, or need not be

    def __post_init__(self) -> None:
        self._stopped = StoppedTables(self.edges.state, COMPANIONS)
        self._noted = read_companions(self.edges.state)
        self._standings, self._tidied = dict(self._noted), read_tidied(self.edges.state)

    def catch_up(self, tables: Iterable[TableRun]) -> bool:
        """`run.companion_tables.CompanionTables.catch_up`. Raises LeaseLost."""
        worked, all_tables = False, list(tables)
        if self._dropped is None:
            self._dropped = self._find_dropped()
        for table in all_tables:
            for kind in self.kinds:
                if self._is_due(kind, table):
                    name, companion = (kind.key, table.id), kind.table_of(table.id)
                    worked |= self._tried(name, companion, partial(self._write, kind, table))
        if self.listing is not None:
            worked |= self._catch_up_list(self.listing)
        return worked

    def _find_dropped(self) -> set[Name]:
        """The noted companions that somebody has dropped or renamed: they begin anew at once, even for quiet tables."""
        edges, names = self.edges, {kind.key: kind.table_of for kind in self.kinds}
        noted = {(key, table): names[key](table) for key, table in self._noted if key in names}
        if not noted:
            return set()
        try:
            with translate_errors(edges.source.settings, edges.target):
                present = set(edges.target.names(shown=True))
        except LakeIngestError:  # whoever writes a companion meets it, and reports it
            return set()
        return {name for name, companion in noted.items() if edges.config.target.identifier(companion) not in present}

    def tidy(self, tables: Iterable[TableRun], stopping: Callable[[], bool], at_most: int | None = None) -> bool:
        """`run.companion_tables.CompanionTables.tidy`. Old rows are removed by whole days, so once a day is enough.

        Raises LeaseLost.
        """
        today, tidied = datetime.now(UTC).date(), 0
        if not self.takes_all or self._tidied == today:
            return False
        if self._tidying != today:
            self._tidying, self._looked_at = today, set()
        for name, companion, tidy in self._tidyings(tables):
            if name in self._looked_at:
                continue
            if stopping() or tidied == at_most:
                return tidied > 0
            self._looked_at.add(name)
            if name in self._standings and name not in self._behind:  # else it is to be written first
                self._tried(name, companion, tidy)
                tidied += 1
        self._tidied, self._must_note = today, True
        return True

    def _tidyings(self, tables: Iterable[TableRun]) -> Iterator[tuple[Name, TableId, Callable[[], None]]]:
        """For each companion that can have something to tidy: its key, its name in the lake, and what tidies it."""
        for table in tables:
            for kind in self.kinds:
                if kind.tidies and kind.is_wanted(table):
                    name, standing = (kind.key, table.id), partial(kind.standing, table)
                    tidy = partial(self._tidy, name, standing, partial(kind.tidy, table, now=True))
                    yield name, kind.table_of(table.id), tidy
        if self.listing is not None:
            name = self.listing.key, self.listing.name
            yield name, self.listing.name, partial(self._tidy, name, self.listing.standing, self.listing.tidy)

    def _tidy(self, name: Name, standing: Callable[[], Standing | None], tidy: Callable[[], int | None]) -> None:
        """Tidy a companion, which this run may not have opened yet. If it has no commit, nothing is done."""
        if self._standing(name, standing) is not None:
            self._tidied_to(name, tidy())

    def _tidied_to(self, name: Name, version: int | None) -> None:
        """Note the version of a companion after it was tidied; None: it made no commit."""
        if version is not None:
            self._standings[name] = replace(self._standings[name], version=version)
            # the old note does not count for the new version, and the commit itself may have an earlier position
            self._must_note = True

    def _is_due(self, kind: Companion, table: TableRun) -> bool:
        """Whether the companion lacks something, and may be tried now. Of a quiet table, only a later place is noted.

        A table without a published copy has no companion yet.
        """
        name, copy, place = (kind.key, table.id), table.copy, _shown_place(table)
        if place is None or copy is None or copy.published is None or not kind.is_wanted(table):
            return False
        self._seen.add(name)
        standing = self._standings.get(name)
        has_failed = not self._stopped.is_empty and self._stopped.read(kind.table_of(table.id)) is not None
        must_look = has_failed or name in (self._dropped or ())  # its table in the lake may be gone or damaged
        # nothing was published since the companion was written
        if not must_look and standing is not None and standing.of == copy.published and copy.visible:
            if standing.read_to.place < place:  # the copy is quiet: not one of its rows has changed since
                self._standings[name] = standing.unchanged_to(place)
                self._must_note = True
            return False
        # a companion at this place can lack only rows that were read again: it gets them once readers see all of them
        if name in self._loaded and standing is not None and standing.read_to.place >= place and not copy.visible:
            return False
        self._behind.add(name)
        return time.monotonic() >= self._not_before.get(name, 0.0)

    def _tried(self, name: Name, companion: TableId, write: Callable[[], None]) -> bool:
        """Write or tidy the companion with this name in the lake. Returns whether this succeeded; reports an error."""
        key, table = name
        try:
            with (
                _named_refusals(companion),
                translate_errors(self.edges.source.settings, self.edges.target),
                self.edges.profile.stage(key),
            ):
                write()
                self._stopped.remove(companion)
        except LeaseLost:
            raise
        except LakeIngestError as error:
            self._not_before[name] = time.monotonic() + RETRY_SECONDS
            self._changelogs.pop(table, None)  # it may have another name at the next try
            self._forget(name)
            self.edges.lease.assert_held()  # if another run took over, it may have caused the error
            self.edges.observe(Undelivered(key, error.line))
            self._record(key, Stopped.of(companion, error))
            return False
        (self._dropped or set()).discard(name)
        self._not_before.pop(name, None)
        return True

    def _forget(self, name: Name) -> None:
        """After an error, nobody knows which commits were made: look up the last commit before the next write.

        Until then, the companion counts as one that lacks something. Its last commit may have an earlier position than
        the one that this run knew. Then the archive may no longer have the changes after the earlier position, and the
        companion begins anew.
        """
        self._loaded.discard(name)
        self._behind.add(name)
        if name in self._standings:
            # 0 is no version of the copy: `_is_due` must not find that nothing was published since
            self._standings[name] = replace(self._standings[name], of=0)
            self._must_note = True

    def _record(self, key: str, stopped: Stopped) -> None:
        """Keep for `status` why a companion stands still. If that cannot be written, the run says so, and goes on."""
        try:
            self._stopped.record(stopped)
        except StorageFailed as failed:
            self.edges.observe(Undelivered(key, failed.line))

    def errors_of(self, table: TableRun) -> Mapping[str, str]:
        """`run.companion_tables.CompanionTables.errors_of`."""
        records = {
            kind.key: self._stopped.read(kind.table_of(table.id)) for kind in self.kinds if kind.is_wanted(table)
        }
        return {key: "" if record is None else record.error for key, record in records.items()}

    def _catch_up_list(self, listing: ListOfAll) -> bool:
        """Write the list about the companions of the first kind, up to where all of them go. True if it was written."""
        kind, name = self.kinds[0].key, (listing.key, listing.name)
        self._seen.add(name)
        wanted = {table for key, table in self._seen if key == kind}
        # and those that earlier runs have noted, and this run has not looked at yet
        wanted |= {table for key, table in self._noted if key == kind and table in self.copied}
        standings = {table: self._standings.get((kind, table)) for table in wanted}
        to = complete_to({table: None if one is None else one.read_to.place for table, one in standings.items()})
        present = self._standings.get(name) if name in self._loaded else None
        if to is None or (present is not None and present.read_to.place >= to):
            return False
        self._behind.add(name)
        if time.monotonic() < self._not_before.get(name, 0.0):
            return False

        def write() -> None:
            """Write what the list lacks up to `to`, and note how far the list is now."""
            before = self._standing(name, listing.standing)
            self._note(name, before, listing.write(None if before is None else before.read_to, to, wanted))

        return self._tried(name, listing.name, write)

    def _write(self, kind: Companion, table: TableRun) -> None:
        """Write what the companion lacks, then tidy it. If some of what it lacks is lost, begin the companion anew.

        Raises NotOurTable if a table of the source has the companion's name.
        """
        name, companion = (kind.key, table.id), kind.table_of(table.id)
        if companion in self.copied:
            raise NotOurTable(
                f"{companion} is a table of the source, and has the name of the {kind.key} of {table.id}; leave it out"
                " by tables.exclude, or do without"
            )
        standing = self._standing(name, partial(kind.standing, table))
        reading_on = self._reading(table, standing, "it is new")
        try:
            written = kind.write(table, reading_on)
        except ChangelogGone as error:
            if reading_on.since is None:
                raise
            self._changelogs.pop(table.id, None)  # it may have another name now
            kind.standing(table)  # opens the companion at its last commit: some commits may have been made
            written = kind.write(table, self._reading(table, None, error.line))
        assert table.copy is not None  # noqa: S101 - `_is_due` has seen it
        of = table.copy.published if table.copy.visible else None  # None: the copy has rows that readers do not see
        written = replace(written, of=of or 0)
        self._note(name, standing, written)
        self._tidied_to(name, kind.tidy(table))

    def _note(self, name: Name, before: Standing | None, after: Standing) -> None:
        """Note how far a companion is now.

        The state folder must have this if the companion is new, or if no commit of the companion tells it.
        """
        self._standings[name] = after
        self._loaded.add(name)
        self._behind.discard(name)
        is_new_or_same = before is None or before.version == after.version  # the same: it made no commit
        self._must_note = self._must_note or is_new_or_same or name not in self._noted

    def _standing(self, name: Name, standing: Callable[[], Standing | None]) -> Standing | None:
        """How far the companion is: by its last commit, or as of a later place that is noted for this commit.

        `standing`: asks the companion for its last commit. If this is not the noted commit, such as after a rollback,
        the last commit counts, and the companion lacks something: until it is written, the archive keeps the changes
        after this commit.
        """
        if name in self._loaded:
            return self._standings[name]
        own, noted = standing(), self._standings.get(name)
        known = None if own is None else own.as_noted(noted)
        if known is None:
            self._standings.pop(name, None)
        else:
            self._standings[name] = known
            self._loaded.add(name)
        if known != noted:
            self._behind.add(name)
            self._must_note = True
        return known

    def _reading(self, table: TableRun, standing: Standing | None, why: str) -> Reading:
        """What a companion with this standing has still to read. Without one, it begins anew, and `why` says why."""
        place = _shown_place(table)
        assert place is not None and table.copy is not None  # noqa: S101, PT018 - `_is_due` has seen them
        if self._versions is None:
            self._versions = open_versions(self.edges.config)
        if table.id not in self._changelogs:
            self._changelogs[table.id] = ShownChangelog(self.edges.config, table.id, self._versions)
        changelog, rereads = self._changelogs[table.id], table.copy.visible
        if standing is None:
            return Reading(changelog, None, place, rereads, why)
        return Reading(changelog, standing.read_to, place, rereads)

    def hold(self, spool: Spool) -> None:
        """Store the standings in the state folder if they have changed, without those of unwanted companions.

        Then let the archive keep what companions that are behind have still to read.
        """
        for name in [name for name in self._standings if not self._is_kept(name)]:
            del self._standings[name]
            self._behind.discard(name)
            self._loaded.discard(name)
            self._must_note = True
        if self._must_note:
            store_companions(self.edges.writing, self._standings, self._tidied)
            self._noted, self._must_note = dict(self._standings), False
        least = self._least_unread()
        if least is None:
            self._held.close()
            self._reader = None
            return
        if self._reader is None:
            self._reader = self._held.enter_context(reading(spool.folder))
        self._reader.has_read(least)

    def _least_unread(self) -> Place | None:
        """The least place of the companions that are behind, or may be behind; None if there is no such companion."""
        unseen = self._noted.keys() - self._seen  # they may be behind
        places = [self._standings[name].read_to.place for name in self._behind | unseen if name in self._standings]
        return min(places, default=None)

    def _is_kept(self, name: Name) -> bool:
        """Whether the notes keep the companion's standing. True for a wanted companion, and if this run cannot tell."""
        key, id_ = name
        if self.listing is not None and key == self.listing.key:
            return id_ == self.listing.name
        kind = next((kind for kind in self.kinds if kind.key == key), None)
        if kind is None:
            return False
        table = self.copied.get(id_)  # None: pipeline.yml no longer has the table, or only this run leaves it out
        return not self.takes_all if table is None else kind.is_wanted(table)


@contextmanager
def _named_refusals(companion: TableId) -> Iterator[None]:
    """Raise UnsupportedTable for rows or columns that the block cannot write into the companion."""
    try:
        yield
    except (ValueError, pa.ArrowException) as error:  # among them NotLiftable and ArrowInvalid
        if isinstance(error, LakeIngestError):
            raise
        raise UnsupportedTable(
            f"{companion} cannot be written on ({type(error).__name__}: {error}); drop it, and the next run begins it"
            " anew"
        ) from error


def _shown_place(table: TableRun) -> Place | None:
    """The place as of which readers see the copy; None if it is not known."""
    position = None if table.shown is None else table.shown.position
    return None if position is None else position.place
