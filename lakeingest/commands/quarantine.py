"""Quarantine: which rows failed a gate and are not in the copies, the evidence of them, and how they come back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from lakeingest.commands.report import Report
from lakeingest.commands.resnapshot import scope_of
from lakeingest.commands.signal import Reporter, SignalResults, ask, chosen_tables
from lakeingest.config import Config
from lakeingest.core.copies.signals import Action
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import Scope
from lakeingest.errors import UsageError
from lakeingest.files.file import File, state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copied, copies
from lakeingest.mysql.key_values import key_of_difference
from lakeingest.mysql.source import Source
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.state import evidence
from lakeingest.state.evidence import drop_released, folder_of, key_text, read_evidence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN = (  # the columns of evidence that are not the row's
    evidence.KEY,
    evidence.EXPECTATIONS,
    evidence.POSITION,
    evidence.CHANGE_KIND,
    evidence.CHANGE_PLACE,
    evidence.CHANGE_GTID,
    evidence.CHANGE_COMMITTED_AT,
    evidence.QUARANTINED_AT,
    evidence.RELEASED_AT,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A key in quarantine, or the evidence of one that was there. `key` is a JSON array, as `--keys` takes it.

    `expectations`: what its row failed. `position`: the position in the binlog as of which the row failed. `change`:
    the kind of the change that has brought the row; None if the row was read from the table. `gtid`: that of the
    change, if it has one. `quarantined_at`: when the row left the copy. `released_at`: when readers saw that the key
    had left the quarantine; None as long as it is in quarantine. `row`: the values of the row by column; None if they
    are not shown. If the evidence is lost, everything but `table` and `key` is None.
    """

    table: TableId
    key: str
    expectations: tuple[str, ...] | None = None
    position: str | None = None
    change: str | None = None
    gtid: str | None = None
    quarantined_at: str | None = None
    released_at: str | None = None
    row: Mapping[str, Any] | None = None


class KeptKeys(Report, tuple[Kept, ...]):  # noqa: SLOT001 - a tuple with attributes
    """Keys in quarantine, or evidence. `folders`: the folders with the evidence, for programs that read Parquet."""

    folders: tuple[str, ...] = ()
    headers = ("table", "key", "fails", "position", "change", "quarantined at", "released at", "row")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each key."""
        for kept in self:
            fails = None if kept.expectations is None else "; ".join(kept.expectations)
            times = kept.quarantined_at, kept.released_at
            row = None if kept.row is None else ", ".join(f"{name}={value}" for name, value in kept.row.items())
            yield str(kept.table), kept.key, fails, kept.position, kept.change, *times, row

    @property
    def notes(self) -> Sequence[str]:
        """The folders with the evidence."""
        return [f"evidence, as Parquet: {folder}" for folder in self.folders]


def listed(config: Config, tables: Sequence[str] = ()) -> KeptKeys:
    """The keys in quarantine of these tables; without names, of all tables. Only the lake and the state are read."""
    target, state = open_target(config), state_of(config)
    chosen = chosen_tables(config, tables) or config.tables.select(copied(target, config.target))
    found: list[Kept] = []
    folders: list[str] = []
    for table, staged in sorted(copies(target, chosen).staged.items()):
        if not staged.progress.quarantine:
            continue
        # of several rows of evidence with one key, the last one counts
        stored = {kept.key: kept for kept in _evidence(state, table) if kept.released_at is None}
        keys = map(key_text, staged.progress.quarantine)
        found += [stored.get(key, Kept(table, key)) for key in keys]
        folders.append(str(folder_of(state, table)))
    return _kept(found, folders)


def shown(config: Config, table: str) -> KeptKeys:
    """The evidence of a table, the oldest position first, also of keys that have left the quarantine.

    With `quality: {samples: false}`, only the keys of the rows are shown. Raises StateUnreadable if evidence is
    damaged.
    """
    [chosen] = chosen_tables(config, [table])
    state = state_of(config)
    found = list(_evidence(state, chosen, rows=config.quality.samples))
    return _kept(found, [str(folder_of(state, chosen))] if found else [])


def release(
    config: Config,
    table: str,
    keys: Sequence[Any] = (),
    *,
    wait: bool = True,
    report: Reporter = lambda _: None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
) -> SignalResults:
    """Read the rows of these keys again; without keys, of all keys of the table that are in quarantine.

    A row that is sound now is published. One that fails again stays in quarantine, with its present values. Raises
    UsageError if no key is in quarantine, or if a key does not fit the table.
    """
    if keys:
        scope = scope_of(config, [table], keys=keys)
    else:
        [chosen] = chosen_tables(config, [table])
        in_quarantine = _keys_of(config, chosen)
        if not in_quarantine:
            raise UsageError(f"{chosen}: no key is in quarantine")
        with Source.open(config.source) as source:
            schema = source.schema(chosen, config.tables.of(chosen).choices)
        scope = Scope(keys=tuple(key_of_difference(schema, key) for key in in_quarantine))
    return ask(config, Action.RESNAPSHOT, [table], scope=scope, wait=wait, report=report, observe=observe, spark=spark)


def drop(config: Config, table: str) -> int:
    """Remove the evidence of keys that have left the quarantine. Returns the number of rows that were removed.

    Rows that left the copy in one commit are removed together, once all of them have left the quarantine.
    """
    [chosen] = chosen_tables(config, [table])
    return drop_released(state_of(config), chosen)


def _keys_of(config: Config, table: TableId) -> tuple[Key, ...]:
    """The keys of the table that are in quarantine."""
    staged = copies(open_target(config), [table]).staged.get(table)
    return () if staged is None else staged.progress.quarantine


def _kept(found: Sequence[Kept], folders: Sequence[str]) -> KeptKeys:
    """The keys `found`, with the folders of their evidence."""
    result = KeptKeys(found)
    result.folders = tuple(folders)
    return result


def _evidence(state: File, table: TableId, *, rows: bool = False) -> Iterator[Kept]:
    """The evidence of a table. `rows`: with the values of the rows."""
    for stored in read_evidence(state, table):
        facts: dict[str, Any] = {name: stored.get(name) for name in _OWN}
        yield Kept(
            table,
            str(facts[evidence.KEY]),
            tuple(facts[evidence.EXPECTATIONS]),
            facts[evidence.POSITION],
            facts[evidence.CHANGE_KIND],
            facts[evidence.CHANGE_GTID],
            _text(facts[evidence.QUARANTINED_AT]),
            _text(facts[evidence.RELEASED_AT]),
            {name: _text(value) for name, value in stored.items() if name not in _OWN} if rows else None,
        )


def _text(value: Any) -> Any:
    """A value in a form that JSON can have."""
    match value:
        case datetime():
            return value.isoformat(timespec="microseconds" if value.microsecond else "seconds")
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case None | bool() | int() | float() | list():
            return value
    return str(value)
