"""Versions of rows in the form that the lake stores them: the columns of the history of a table.

`core.companions.history_table` says which columns these are.

`core.companions.validity` decides which versions begin and end. Here it gets changes as values, and rows as numbers of
rows in Arrow tables. What it returns becomes one Arrow table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.history_table import (
    BEGUN_BY,
    ENDED_BY,
    FROM_GTID,
    FROM_POSITION,
    IS_CURRENT,
    TO_GTID,
    TO_POSITION,
    VALID_FROM,
    VALID_TO,
    columns_of,
    in_history,
)
from lakeingest.core.companions.validity import Begun, Change, Ended, KeyValues, Moment, Version, fold, in_order
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Part
from lakeingest.rows import INSTANT, arrow_type, table_schema
from lakeingest.spool.followed import Altered

_MICROS = pa.int64()
TimeOf = Callable[[Place], int]  # the time of a place, in µs since 1970


@dataclass(frozen=True, slots=True)
class Folded:
    """What changes make of the history. `rows`: the versions that they begin or end, with all columns of the history.

    `ended`: those of `rows` that the lake has as current versions. `begun`: how many of `rows` the lake does not have.
    `latest`: the greatest time in the history, with these changes, in µs since 1970.
    """

    rows: pa.Table
    ended: pa.Table
    begun: int
    latest: int


@dataclass(frozen=True)
class Changes:
    """Changes of one definition of the table, in order, with the current versions of their keys.

    `current` has the columns of the history, and a row for each key that has a current version. `log`: the name of the
    changelog. `time_of`: the time of the place as of which rows were read again.
    """

    history: TableSchema
    current: pa.Table
    changed: Sequence[Changed]
    log: str
    time_of: TimeOf

    def folded(self, latest: int) -> Folded:
        """The versions that the changes begin or end. `latest`: the greatest time of all earlier changes."""
        changes = self._changes(latest)
        versions = fold(self._current_versions(), changes, self._same)
        last = changes[-1].moment.at if changes else latest
        rows = self._rows(versions)
        is_ended = pa.array([version.is_stored for version in versions], pa.bool_())
        ended = rows.filter(is_ended)
        return Folded(rows, ended, rows.num_rows - ended.num_rows, last)

    @property
    def _key(self) -> tuple[str, ...]:
        return self.changed[0].schema.key

    def _changes(self, latest: int) -> list[Change[int]]:
        """The changes, as `core.companions.validity` takes them. The row of a change is a number in `_values`."""
        moments, kinds, rereads = list[tuple[str, str | None]](), list[RowKind](), list[bool]()
        times = list[int]()
        for part in self.changed:
            rows = part.rows
            committed_at = rows[change.COMMITTED_AT].cast(_MICROS).to_pylist()
            columns = (rows[name].to_pylist() for name in (*change.ORDER, change.GTID))
            for (epoch, file, pos, ordinal, gtid), at in zip(zip(*columns, strict=True), committed_at, strict=True):
                place, is_reread = Place(epoch, file, pos), at is None  # a reread row has no commit time
                read_to = (
                    ReadTo(place, reread=ordinal, log=self.log) if is_reread else ReadTo(place, ordinal, log=self.log)
                )
                moments.append((str(read_to), gtid))
                times.append(self.time_of(place) if is_reread else at)
                rereads.append(is_reread)
            kinds += map(RowKind, rows[change.KIND].to_pylist())
        begin = self.current.num_rows  # in `_values`, the rows of the changes come after those of `current`
        keys = _keys(self._values.slice(begin), self._key)
        ordered = in_order(times, latest)
        return [
            Change(key, kind, begin + number, Moment(position, at, gtid), is_reread)
            for number, (key, kind, (position, gtid), at, is_reread) in enumerate(
                zip(keys, kinds, moments, ordered, rereads, strict=True)
            )
        ]

    @cached_property
    def _values(self) -> pa.Table:
        """The values of rows: of `current`, then of the changes."""
        fields = value_fields(self.history)
        values = [self.current.select(fields.names).cast(fields)]
        values += (values_of(pa.Table.from_batches([part.rows]), part.schema, self.history) for part in self.changed)
        return pa.concat_tables(values).combine_chunks()

    def _current_versions(self) -> dict[KeyValues, Version[int]]:
        """The current versions by their keys. `row` is a number in `_values`, which begins with `current`."""
        return {version.key: version for version in stored_versions(self.current, self._key)}

    @cached_property
    def _tuples(self) -> list[tuple[object, ...]]:
        """The values of each row, in the columns of the definition that all these changes have."""
        names = self.changed[0].schema.names
        return list(zip(*(self._values[name].to_pylist() for name in names), strict=True))

    def _same(self, left: int, right: int) -> bool:
        """Whether the rows with these two numbers in `_values` have equal values."""
        return self._tuples[left] == self._tuples[right]

    def _rows(self, versions: Sequence[Version[int]]) -> pa.Table:
        """The rows of these versions, with all columns of the history."""
        numbers = pa.array([version.row for version in versions], pa.int64())
        return with_validity(self._values.take(numbers), versions, self.history)


def stored_versions(rows: pa.Table, key: Sequence[str]) -> Iterator[Version[int]]:
    """The current versions that the lake has in these rows of the history. `row` of a version is a number in `rows`."""
    columns = [rows[name].to_pylist() for name in (FROM_POSITION, FROM_GTID, BEGUN_BY)]
    times = rows[VALID_FROM].cast(_MICROS).to_pylist()
    for number, (row_key, at, position, gtid, begun_by) in enumerate(
        zip(_keys(rows, key), times, *columns, strict=True)
    ):
        yield Version(row_key, number, Moment(position, at, gtid), Begun(begun_by), is_stored=True)


def all_ended(rows: pa.Table, moment: Moment, by: Ended, history: TableSchema) -> pa.Table:
    """These current rows of the history, ended at this moment, with all columns of the history.

    A version that begins at the moment's position or after it gets an end position just after that of its own begin.
    """
    versions = [
        version.ended(replace(moment, position=max(moment.position, f"{version.begins.position}~{by}")), by)
        for version in stored_versions(rows, ())  # without keys, which are not needed to end a version
    ]
    return with_validity(rows.select(value_fields(history).names), versions, history)


def copied(rows: pa.Table, schema: TableSchema, history: TableSchema, moments: Sequence[Moment]) -> pa.Table:
    """Rows of a copy of the table as versions that begin at these moments."""
    versions = [Version((), number, moment, Begun.COPY) for number, moment in enumerate(moments)]
    return with_validity(values_of(rows, schema, history), versions, history)


def with_validity(values: pa.Table, versions: Sequence[Version[int]], history: TableSchema) -> pa.Table:
    """The values of rows, with the columns that say where the version in each row begins and ends."""
    ends = [version.ends for version in versions]
    columns: Mapping[str, list[object]] = {
        VALID_FROM: [version.begins.at for version in versions],
        VALID_TO: [end and end.at for end in ends],
        IS_CURRENT: [end is None for end in ends],
        FROM_POSITION: [version.begins.position for version in versions],
        TO_POSITION: [end and end.position for end in ends],
        FROM_GTID: [version.begins.gtid for version in versions],
        TO_GTID: [end and end.gtid for end in ends],
        BEGUN_BY: [version.begun_by.value for version in versions],
        ENDED_BY: [version.ended_by and version.ended_by.value for version in versions],
    }
    fields = table_schema(history)
    arrays = {name: pa.chunked_array([_array(column, fields.field(name).type)]) for name, column in columns.items()}
    all_columns = [arrays[name] if name in arrays else values[name] for name in fields.names]
    return pa.table(all_columns, schema=fields)


def value_fields(history: TableSchema) -> pa.Schema:
    """The columns of the history that the table has or had."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in columns_of(history)])


def named_in_history(part: Part) -> Part:
    """The part of a changelog, with the names that the table's columns have in its history."""
    if isinstance(part, Altered):
        ddl = part.followed
        before, after = in_history(ddl.before), in_history(ddl.after)
        old = dict(zip(ddl.before.names, before.names, strict=True))
        new = dict(zip(ddl.after.names, after.names, strict=True))
        origins = tuple(None if name is None else old[name] for name in ddl.origins)
        fills = {new[name]: value for name, value in ddl.fills.items()}
        return replace(part, followed=replace(ddl, before=before, after=after, origins=origins, fills=fills))
    schema = in_history(part.schema)
    if schema == part.schema:
        return part
    names = dict(zip(part.schema.names, schema.names, strict=True))
    rows = part.rows.rename_columns([names.get(name, name) for name in part.rows.schema.names])
    return replace(part, rows=rows, schema=schema)


def values_of(rows: pa.Table, schema: TableSchema, history: TableSchema) -> pa.Table:
    """Rows of the table with this definition, in the columns of `value_fields`. Other columns are NULL."""
    fields = value_fields(history)
    columns = [
        rows[field.name].cast(field.type) if field.name in schema.names else pa.nulls(rows.num_rows, field.type)
        for field in fields
    ]
    return pa.table(columns, schema=fields)


def rows_with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is one of `keys`, a table of the key's columns."""
    names, number = keys.column_names, "_lakeingest_number"
    own = rows.select(names).cast(keys.schema).append_column(number, pa.array(range(rows.num_rows), pa.int64()))
    found = own.join(keys, keys=names, join_type="left semi", use_threads=False)
    return rows.take(found[number])


def _keys(rows: pa.Table, key: Sequence[str]) -> list[KeyValues]:
    """The key of each row."""
    if not key:
        return [()] * rows.num_rows
    return list(zip(*(rows[name].to_pylist() for name in key), strict=True))


def _array(values: list[object], type_: pa.DataType) -> pa.Array:
    """The values as an array of this type; times are given in µs since 1970."""
    return pa.array(values, _MICROS).cast(INSTANT) if type_ == INSTANT else pa.array(values, type_)
