"""Histories in a lake, beside a program that keeps every state of a table.

The parts of a changelog are made here, with a transaction at a time, DDL, TRUNCATE and rows that are read again. They
are written in commits of any size, by runs that die after any commit.
"""

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakeingest import config
from lakeingest.config import Target
from lakeingest.config.place import Place as Folder
from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions import companion
from lakeingest.core.companions.history_table import FROM_POSITION, IS_CURRENT, NAMES, latest_of, new_history
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.pipeline.changelog.reading import Changed, Copied
from lakeingest.pipeline.companions import history_writing
from lakeingest.pipeline.companions.history_writing import HistoryTable, HistoryWriting
from lakeingest.rows import change_schema, reread_schema, table_schema
from lakeingest.spool.followed import Altered, Followed
from lakeingest.state.history_definitions import history_with, keep_history

INT, TEXT = SourceType("int", "int"), SourceType("varchar(9)", "varchar", size=9)
ORDERS = TableId("shop", "orders `x`.y")
COLUMNS = (
    Column("id", Kind.INT32, INT, nullable=False),
    Column("city", Kind.STRING, TEXT, nullable=False),
    Column("v", Kind.INT32, INT),
)
BEGIN = TableSchema(ORDERS, COLUMNS, ("id", "city"))
LOG = "1f0c83aa"
Part = Copied | Changed | Altered
Row = tuple[tuple[str, Any], ...]  # the columns and values of a row, without NULLs


@dataclass
class Source:
    """A table that changes at random: its changelog, and its rows after each transaction, by its place and by time."""

    chance: random.Random
    schema: TableSchema = BEGIN
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    number: int = 0
    at: int = 1_700_000_000_000_000
    parts: list[Part] = field(default_factory=list)
    states: dict[Place, set[Row]] = field(default_factory=dict)
    times: list[tuple[int, set[Row]]] = field(default_factory=list)
    added: int = 0

    @property
    def place(self) -> Place:
        """The place of the last transaction."""
        return Place(1, 1, 1_000 * self.number)

    def copy(self) -> None:
        """Rows to begin with."""
        self.number += 1
        for key in range(6):
            row = {"id": key, "city": "a", "v": key}
            self.rows[self.key_of(row)] = row
        rows = pa.Table.from_pylist(list(self.rows.values()), table_schema(self.schema))
        batches = rows.to_batches(4)
        self.parts += [
            Copied(batch, self.schema, self.place, last=number == len(batches))
            for number, batch in enumerate(batches, 1)
        ]
        self.note()

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[name] for name in self.schema.key)

    def note(self, *, timed: bool = True) -> None:
        """Keep the state."""
        state = {visible(row) for row in self.rows.values()}
        self.states[self.place] = state
        if timed:
            self.times.append((self.at, state))

    def transaction(self) -> None:
        """Some changes."""
        self.begin()
        changed: list[tuple[RowKind, dict[str, Any]]] = []
        for _ in range(self.chance.randint(1, 4)):
            self.statement(changed)
        rows: list[dict[str, Any]] = [
            {
                change.KIND: kind.value,
                **self.origin(ordinal),
                change.COMMITTED_AT: self.at,
                change.GTID: f"g:{self.number}",
                **row,
            }
            for ordinal, (kind, row) in enumerate(changed)
        ]
        if rows:
            fields = change_schema(self.schema)
            self.parts.append(Changed(batch_of(rows, fields), self.schema))
        self.note()

    def begin(self) -> None:
        """The next transaction; the clock may stand still, or go back."""
        self.number += 1
        self.at += self.chance.choice([0, 0, 7, 1_000_000, -1_500_000])

    def origin(self, ordinal: int) -> dict[str, Any]:
        """Where a change row comes from."""
        return {**dict(zip(change.PLACE, (1, 1, self.place.pos), strict=True)), change.ORDINAL: ordinal}

    def statement(self, changed: list[tuple[RowKind, dict[str, Any]]]) -> None:
        """One row that is inserted, changed, moved to another key, or deleted."""
        row: dict[str, Any] = {column.name: self.chance.choice([None, 1, 2]) for column in self.schema.columns}
        row |= {self.schema.key[0]: self.chance.randint(0, 9), self.schema.key[1]: self.chance.choice("ab")}
        key, there = self.key_of(row), sorted(self.rows)
        if key not in self.rows and self.chance.random() < 0.6:
            changed.append((RowKind.INSERT, row))
            self.rows[key] = row
            return
        if not there:
            return
        old = self.rows.pop(self.chance.choice(there))
        if self.chance.random() < 0.3:
            changed.append((RowKind.DELETE, old))
            return
        new = row if key not in self.rows else old | {name: row[name] for name in row if name not in self.schema.key}
        changed += [(RowKind.UPDATE_BEFORE, old), (RowKind.UPDATE_AFTER, new)]
        self.rows[self.key_of(new)] = new

    def lose(self) -> None:
        """A change that nobody logs, and that is put right at once: the row is read again at the place."""
        if not self.rows:
            return
        key = self.chance.choice(sorted(self.rows))
        same, gone = self.chance.random() < 0.4, self.chance.random() < 0.3
        row = self.rows[key] if same else self.rows[key] | {self.schema.names[2]: self.chance.randint(5, 9)}
        kind = RowKind.DELETE if gone and not same else RowKind.INSERT
        document = {change.KIND: kind.value, **self.origin(0), change.COMMITTED_AT: None, change.GTID: None}
        shown = {name: row[name] for name in self.schema.key} if kind is RowKind.DELETE else row
        rows = [document | dict.fromkeys(self.schema.names) | shown]
        if self.parts and isinstance(self.parts[-1], Changed) and self.parts[-1].rows[change.COMMITTED_AT].null_count:
            return  # as of this place a row was read again already
        self.parts.append(Changed(batch_of(rows, reread_schema(self.schema)), self.schema))
        if kind is RowKind.DELETE:
            del self.rows[key]
        else:
            self.rows[key] = row
        self.note(timed=False)
        self.times[-1] = (self.times[-1][0], self.states[self.place])

    def truncate(self) -> None:
        """TRUNCATE."""
        self.begin()
        self.rows.clear()
        self.alter(self.schema, {name: name for name in self.schema.names}, {}, empties=True)

    def ddl(self) -> None:
        """A column is added, dropped, renamed, or becomes wider."""
        self.begin()
        kind = self.chance.choice(["add", "drop", "rename", "widen", "rename key"])
        columns, fills = list(self.schema.columns), dict[str, pa.Scalar]()
        origins: dict[str, str | None] = {name: name for name in self.schema.names}
        values = [column for column in columns if column.name not in self.schema.key]
        key = self.schema.key
        if kind == "add":
            self.added += 1
            name = self.chance.choice([f"c{self.added}", "v", "C1"])
            if name.casefold() in {column.name.casefold() for column in columns}:
                name = f"c{self.added}"
            fill = self.chance.choice([None, 4])
            columns.insert(self.chance.randint(0, len(columns)), Column(name, Kind.INT32, INT, default=Value(fill)))
            origins[name] = None
            fills = {} if fill is None else {name: pa.scalar(fill, pa.int32())}
            for row in self.rows.values():
                row[name] = fill
        elif kind == "drop" and len(values) > 1:
            gone = self.chance.choice(values)
            columns.remove(gone)
            for row in self.rows.values():
                del row[gone.name]
        elif kind in {"rename", "rename key"}:
            old = self.chance.choice(columns if kind == "rename key" else values)
            self.added += 1
            name = f"{old.name[:1]}r{self.added}"
            columns[columns.index(old)] = replace(old, name=name)
            origins[name] = old.name
            key = tuple(name if part == old.name else part for part in key)
            for row in self.rows.values():
                row[name] = row.pop(old.name)
        elif kind == "widen":
            wide = self.chance.choice(values)
            columns[columns.index(wide)] = replace(wide, kind=Kind.INT64, source_type=SourceType("bigint", "bigint"))
        after = TableSchema(ORDERS, tuple(columns), key)
        self.alter(after, {name: origins[name] for name in after.names}, fills)

    def alter(
        self,
        after: TableSchema,
        origins: Mapping[str, str | None],
        fills: Mapping[str, pa.Scalar],
        *,
        empties: bool = False,
    ) -> None:
        """DDL in the changelog."""
        committed_at = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=self.at)
        names = tuple(origins[name] for name in after.names)
        followed = Followed(self.schema, after, names, fills, self.place, committed_at, f"g:{self.number}")
        self.parts.append(Altered(cast("Any", SimpleNamespace(empties=empties)), followed))
        self.schema = after
        self.note()


def batch_of(rows: Sequence[Mapping[str, Any]], fields: pa.Schema) -> pa.RecordBatch:
    """Rows whose times are in µs."""
    plain = pa.schema(
        [pa.field(one.name, pa.int64() if one.name == change.COMMITTED_AT else one.type) for one in fields]
    )
    [batch] = pa.Table.from_pylist(list(rows), plain).cast(fields).combine_chunks().to_batches()
    return batch


def visible(row: Mapping[str, Any]) -> Row:
    """A row as it is compared: a column that a table has not is NULL in its history."""
    return tuple(sorted((name, value) for name, value in row.items() if value is not None))


class Died(Exception):
    """The process has died."""


@dataclass
class Lake:
    """A lake with one history, in a folder of the test's own."""

    folder: Path
    dies: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def settings(self) -> Target:
        """The target."""
        return Target(warehouse=Folder.of(self.folder / "warehouse"))

    def assert_held(self) -> None:
        """The lease; the process may die here."""
        if self.chance.random() < self.dies:
            raise Died

    def opened(self) -> HistoryTable:
        """The history at its last commit."""
        options = TableOptions(partition_by=(IS_CURRENT,))  # as `companions.history` has it
        target, state = IcebergTarget(self.settings, lambda _: options), Local(self.folder / "state")
        schema = new_history(BEGIN)
        staged = target.recover(schema.table)
        if staged is None:
            keep_history(state, schema)
            staged = target.create(schema, companion.begun(schema))
        properties = {} if staged.published is None else target.properties(schema.table)
        known = history_with(state, schema.table, staged.progress.fingerprint, properties)
        assert known is not None
        history = HistoryTable(target, state, self.assert_held, staged, known, latest_of(staged.progress))
        if not staged.visible and companion.read_to_of(staged.progress) is not None:
            history.show(staged)
        return history

    def rows(self) -> pa.Table:
        """What readers see."""
        catalog = SqlCatalog(config.CATALOG, **self.settings.pyiceberg_properties())
        try:
            return catalog.load_table(("shop", f"{ORDERS.name}__history")).scan().to_arrow()
        finally:
            catalog.close()


def orders(part: Part) -> list[tuple[Place, int, int]]:
    """The order of each row of a part."""
    if isinstance(part, Altered):
        return [part.followed.read_to.order]
    if isinstance(part, Copied):
        return [ReadTo(part.place).order] * part.rows.num_rows
    return [
        (Place(*(row[name] for name in change.PLACE)), 2 * (row[change.COMMITTED_AT] is None), row[change.ORDINAL])
        for row in part.rows.to_pylist()
    ]


def after(part: Part, since: ReadTo | None) -> Part | None:
    """The rows of a part after a position, as the changelog gives them; None if there are none."""
    are_left = [since is None or order > since.order for order in orders(part)]
    if not any(are_left):
        return None
    return replace(part, rows=part.rows.filter(pa.array(are_left))) if isinstance(part, Changed) else part


def write(lake: Lake, parts: Sequence[Part]) -> None:
    """Write all parts that the history lacks, by as many runs as it takes. All rows were read again at the time 0."""
    end = max(max(orders(part)) for part in parts)
    while True:
        try:
            history = lake.opened()
            since = companion.read_to_of(history.staged.progress)
            left = [one for part in parts if (one := after(part, since)) is not None]
            if not left:
                return
            writing = HistoryWriting(history, LOG, lambda _: 0, since)
            for part in left:
                writing.take(part)
            writing.finish(ReadTo(end[0], log=LOG, reread=end[2]) if end[1] == 2 else ReadTo(end[0], log=LOG))
            return
        except Died:
            continue


Where = Callable[[dict[str, Any]], bool]


def as_of_position(place: Place) -> Where:
    """Whether a version is there as of a position; as the page about histories says it in SQL."""
    limit = f"{place}~"

    def where(row: dict[str, Any]) -> bool:
        return row["valid_from_position"] < limit and (
            row["valid_to_position"] is None or row["valid_to_position"] > limit
        )

    return where


def as_of_time(at: int) -> Where:
    """Whether a version is there at a time, in µs since 1970."""
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=at)

    def where(row: dict[str, Any]) -> bool:
        return row["valid_from"] <= moment and (row["valid_to"] is None or row["valid_to"] > moment)

    return where


def as_of(rows: pa.Table, where: Where) -> list[Row]:
    """The rows of versions that `where` chooses, with the columns that the table has or had."""
    names = [name for name in rows.column_names if name not in NAMES]
    return sorted(visible({name: row[name] for name in names}) for row in rows.to_pylist() if where(row))


def current_names(row: Row, names: set[str]) -> Row:
    """The row with these columns alone."""
    return tuple(part for part in row if part[0] in names)


@pytest.mark.parametrize(("seed", "dies"), [(0, 0.0), (0, 0.15), (1, 0.15)])
@pytest.mark.long("random histories; e2e/test_histories has one in every run")
def test_a_history_in_the_lake_is_the_table_at_every_position_and_time(
    seed: int, dies: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DDL: changes, keys that change, TRUNCATE, rows that are read again, clocks that go back."""
    chance = random.Random(seed)
    monkeypatch.setattr(history_writing, "CHANGES", chance.randint(1, 12))
    monkeypatch.setattr(history_writing, "_COPIED", 3)
    source = Source(chance)
    source.copy()
    for _ in range(40):
        step = chance.random()
        source.truncate() if step < 0.04 else source.lose() if step < 0.25 else source.transaction()
    lake = Lake(tmp_path, dies, chance)
    for end in (len(source.parts) // 2, len(source.parts)):
        write(lake, source.parts[:end])
    rows = lake.rows()
    assert len(set(rows[FROM_POSITION].to_pylist())) == rows.num_rows
    for place, state in source.states.items():
        assert as_of(rows, as_of_position(place)) == sorted(state), place
    passed = 0
    for (at, state), later in zip(source.times, [*source.times[1:], None], strict=True):
        passed = max(passed, at)
        if later is None or later[0] > passed:  # else the next transaction has the same time, or an earlier one
            assert as_of(rows, as_of_time(passed)) == sorted(state), at


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.long("one random history in turn", turn="seed")
def test_a_history_follows_ddl(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of a position see the values of the columns that the table had there and has now, under today's names."""
    chance = random.Random(100 + seed)
    monkeypatch.setattr(history_writing, "CHANGES", 5)
    source = Source(chance)
    source.copy()
    lake = Lake(tmp_path, 0.1, chance)
    seen: list[tuple[Place, set[Row]]] = []
    for _ in range(8):
        for _ in range(chance.randint(1, 3)):
            source.transaction()
        source.ddl()
        write(lake, source.parts)
        source.transaction()
        write(lake, source.parts)
        names = set(source.schema.names)
        rows = lake.rows()
        current = as_of(rows.filter(rows["is_current"]), lambda _: True)
        wanted = sorted(visible(row) for row in source.rows.values())
        assert sorted(current_names(row, names) for row in current) == wanted
        seen.append((source.place, source.states[source.place]))
        for place, state in seen:
            assert len(as_of(rows, as_of_position(place))) == len(state)


def copied_part(source: Source, *documents: Mapping[str, Any]) -> Copied:
    """A copy of these rows, as of the place of the source."""
    rows = pa.Table.from_pylist(list(documents), table_schema(source.schema))
    [batch] = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    return Copied(batch, source.schema, source.place, last=True)


def reread_part(source: Source, *documents: Mapping[str, Any]) -> Changed:
    """Rows that were read again as of the place of the source."""
    rows = [
        {
            change.KIND: RowKind.INSERT.value,
            **source.origin(number),
            change.COMMITTED_AT: None,
            change.GTID: None,
            **document,
        }
        for number, document in enumerate(documents)
    ]
    return Changed(batch_of(rows, reread_schema(source.schema)), source.schema)


@pytest.mark.parametrize("before", ["copy", "changes", "reread rows"])
def test_a_copy_at_the_place_where_the_history_ended_doubles_no_row(before: str, tmp_path: Path) -> None:
    """As of the place there are the rows of the new copy alone, and each version ends after it begins."""
    source = Source(random.Random(6))
    source.copy()
    first = source.place
    if before == "changes":
        while len(source.parts) < 4:
            source.transaction()
    lake = Lake(tmp_path)
    write(lake, source.parts)
    if before == "reread rows":
        write(lake, [*source.parts, reread_part(source, {"id": 3, "city": "a", "v": 70})])
    for log in ("otherlog", "thirdlog"):
        writing = HistoryWriting(lake.opened(), log, lambda _: 9, None)
        rows = [{"id": number, "city": "a", "v": 9} for number in range(2)]
        writing.take(copied_part(source, *rows))
        writing.finish(ReadTo(source.place, log=log))
        found, new = lake.rows(), sorted(map(visible, rows))
        assert as_of(found, as_of_position(source.place)) == new
        assert as_of(found, as_of_time(latest_of(lake.opened().staged.progress))) == new
        if before == "changes":
            assert as_of(found, as_of_position(first)) == sorted(source.states[first])
        for row in found.to_pylist():
            assert row["valid_to_position"] is None or row["valid_from_position"] < row["valid_to_position"]


def test_rows_that_were_read_again_at_one_place_have_one_time(tmp_path: Path) -> None:
    """The changelog is asked once for a place, which takes long, even if it answers with the time of now."""
    source = Source(random.Random(7))
    source.copy()
    history = Lake(tmp_path).opened()
    times = iter(range(source.at, source.at + 1000))
    writing = HistoryWriting(history, LOG, lambda _: next(times), None)
    for part in source.parts:
        writing.take(part)
    writing.take(reread_part(source, *({"id": number, "city": "a", "v": 70} for number in range(3))))
    writing.finish(ReadTo(source.place, log=LOG, reread=2))
    begun = {row["valid_from"] for row in Lake(tmp_path).rows().to_pylist()}
    assert len(begun) == 1
    assert next(times) == source.at + 1


def test_a_commit_after_rows_that_were_read_again_goes_up_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that dies there would write them again."""
    source = Source(random.Random(8))
    source.copy()
    parts = [*source.parts, reread_part(source, *({"id": number, "city": "a", "v": 70} for number in range(3)))]
    place = source.place
    source.parts = []
    while not source.parts:
        source.transaction()
    history = Lake(tmp_path).opened()
    writing = HistoryWriting(history, LOG, lambda _: 0, None)
    for part in parts:
        writing.take(part)
    monkeypatch.setattr(history_writing, "CHANGES", 1)
    writing.take(source.parts[0])
    assert companion.read_to_of(history.staged.progress) == ReadTo(place, log=LOG, reread=2)


def test_a_column_with_a_name_of_the_history_has_another_name_there(tmp_path: Path) -> None:
    """It comes by a copy or by DDL, and gets another name by DDL: no definition of the changelog stops the history."""
    source = Source(random.Random(9), replace(BEGIN, columns=(*COLUMNS, Column("Is_Current", Kind.INT32, INT))))
    lake = Lake(tmp_path)
    history = lake.opened()
    writing = HistoryWriting(history, LOG, lambda _: 0, None)
    source.number = 1
    row = {"id": 1, "city": "a", "v": 3, "Is_Current": 4}
    source.rows[source.key_of(row)] = row
    writing.take(copied_part(source, row))
    source.begin()
    again = replace(BEGIN, columns=(*source.schema.columns, Column("valid_to", Kind.INT32, INT)))
    names: dict[str, str | None] = {name: name for name in source.schema.names}
    source.alter(again, names | {"valid_to": None}, {"valid_to": pa.scalar(5, pa.int32())})
    row["valid_to"] = 5
    source.transaction()
    source.begin()
    free = [replace(column, name=column.name.replace("valid_to", "till")) for column in source.schema.columns]
    source.alter(replace(BEGIN, columns=tuple(free)), names | {"till": "valid_to"}, {})
    for part in source.parts:
        writing.take(part)
    writing.finish(ReadTo(source.place, log=LOG))
    found = lake.rows()
    values = [name for name in found.column_names if name not in NAMES]
    assert values == ["id", "city", "v", "Is_Current__1", "till"]
    then = as_of(found, as_of_position(Place(1, 1, 1_000)))
    assert then == [visible({"id": 1, "city": "a", "v": 3, "Is_Current__1": 4, "till": 5})]


def test_a_gap_ends_all_versions_and_invents_none(tmp_path: Path) -> None:
    """As of the last position before it they are there; after it the rows are those of the new copy."""
    source = Source(random.Random(5))
    source.copy()
    source.transaction()
    lake = Lake(tmp_path)
    write(lake, source.parts)
    before, state = source.place, source.states[source.place]
    history = lake.opened()
    source.number += 10
    writing = HistoryWriting(history, "otherlog", lambda _: 9, None)
    writing.take(copied_part(source, {"id": 50, "city": "new", "v": None}))
    writing.finish(ReadTo(source.place, log="otherlog"))

    found = lake.rows()
    assert as_of(found, as_of_position(before)) == sorted(state)
    assert as_of(found, as_of_time(history.latest)) == [(("city", "new"), ("id", 50))]
    assert as_of(found, as_of_position(replace(before, pos=before.pos + 1))) == []
    assert as_of(found, as_of_position(source.place)) == [(("city", "new"), ("id", 50))]
    ends = {row["ended_by"] for row in found.to_pylist() if as_of_position(before)(row)}
    begins = {row["begun_by"] for row in found.to_pylist() if row["is_current"]}
    assert (ends, begins) == ({"gap"}, {"copy"})


@pytest.mark.parametrize("before", ["rows", "nothing"])
def test_a_history_that_begins_anew_without_rows_begins_once(before: str, tmp_path: Path) -> None:
    """It has nothing to write, but the next run goes on from there, also if all versions had ended before."""
    source = Source(random.Random(5))
    source.copy()
    lake = Lake(tmp_path)
    if before == "rows":
        write(lake, source.parts)
    for log in ("otherlog", "thirdlog"):
        source.number += 10
        writing = HistoryWriting(lake.opened(), log, lambda _: 9, None)
        writing.take(copied_part(source))
        writing.finish(ReadTo(source.place, log=log))
        assert companion.read_to_of(lake.opened().staged.progress) == ReadTo(source.place, log=log)
    ends = [row["ended_by"] for row in lake.rows().to_pylist()]
    assert ends == ["gap"] * (len(source.rows) if before == "rows" else 0)
