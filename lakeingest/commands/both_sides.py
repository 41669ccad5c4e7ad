"""Both sides: one row as the source has it, and as its copy has it. No Spark is started, and nothing is changed.

The copy is as of its published position, and the source is read now. If the two rows differ, the binlog after the
position says whether the source has changed the row since, and what the row was at the position.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.commands.report import Report
from lakeingest.commands.resnapshot import key_values
from lakeingest.config import Config
from lakeingest.core.binlog.position import Position
from lakeingest.core.cascades.cascades import family
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.formats import open_versions
from lakeingest.lake.versions import Versions
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.hash_key import keyed
from lakeingest.mysql.key_values import key_table
from lakeingest.mysql.keyed_rows import rows_of
from lakeingest.pipeline.proving.published_copy import await_published
from lakeingest.pipeline.proving.rows_before import rows_before
from lakeingest.pipeline.rereads.differences import differences
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.rows import table_schema

Row = Mapping[str, Any]  # the values of a row as Arrow gives them to Python, by column


@dataclass(frozen=True, slots=True, repr=False)
class BothSides(Report):
    """A row on both sides. A side without the row is None.

    `source` is the row in the source now, `copy` the row that readers see, `position` that of the copy. `then` is the
    row in the source at this position. `differing`: the columns in which `then` and `copy` have different values, or
    all columns if only one of the two has the row. The copy is right if `differing` is empty.
    """

    table: TableId
    key: Row
    position: Position
    columns: tuple[str, ...]
    source: Row | None
    copy: Row | None
    then: Row | None
    differing: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the copy has the row exactly as the source had it at the copy's position."""
        return not self.differing

    @property
    def has_changed(self) -> bool:
        """Whether the source has changed the row after the position of the copy."""
        return self.source != self.then

    @property
    def headers(self) -> Sequence[str]:
        """The column, each side, and whether they are equal; the row at the position only if it was changed since."""
        then = ("source at the position",) if self.has_changed else ()
        return ("column", "source", *then, "copy", "equal")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each column."""
        sides = (self.source, self.then, self.copy) if self.has_changed else (self.source, self.copy)
        for name in self.columns:
            values = (None if side is None else _text(side[name]) for side in sides)
            yield name, *values, name not in self.differing

    @property
    def notes(self) -> Sequence[str]:
        """What the comparison says, and as of which position."""
        if self.differing:
            verdict = "source ≠ copy"
        elif self.copy is None and self.source is None:
            verdict = "neither side has the row"
        else:
            verdict = "source = copy"
        changed = "; the source has changed the row since" if self.has_changed else ""
        key = ", ".join(f"{name} = {_text(value)}" for name, value in self.key.items())
        return (f"{self.table}, {key}: {verdict} as of {self.position.at}{changed}",)


def both_sides(config: Config, table: str, key: Any) -> BothSides:
    """The row with this key on both sides. `key` is a value of the key's column, or a list of values in key order.

    The files of the copy are read until the row is found. The values in `key` have the forms that `resnapshot` takes.

    Raises:
        UsageError: the pipeline has no such table, or its key cannot have this value.
        Retryable: the table is not published, or its definition was changed after the published position.
        SourceMoved: the rows differ, and foreign keys may have changed the row since, outside the binlog.
        BinlogGone, SourceReplaced: the rows differ, and the source has no binlog after the published position.

    """
    target = open_target(config)
    with BinlogSource.open(config.source) as source, target.storage_errors():
        [chosen] = config.tables.choose(config.tables.select(source.tables()), [table])
        schema = source.schema(chosen, config.tables.of(chosen).choices)
        asked = key_values(schema, key)
        staged = await_published(config, target, schema)
        position = staged.progress.position
        assert position is not None  # noqa: S101 - it is published
        in_source = rows_of(source.connection, keyed(schema, config.source), [asked])
        # the source finds texts by its collation, so its row may have the key in other letters
        asked = in_source.select(schema.key).to_pylist()[0] if in_source.num_rows else asked
        in_copy = _row_of_copy(open_versions(config), schema, staged.version, asked)
        then, differing = in_source, _differing(in_source, in_copy, schema)
        if differing:
            # changes of parents can change the row by foreign keys, and the binlog has only the changes of the parents
            parents = sorted({one.parent for one in family(chosen, _unlogged(config, source, chosen))} - {chosen})
            others = [source.schema(parent, config.tables.of(parent).choices) for parent in parents]
            before = rows_before(source, position, schema, key_table(schema, [asked]), others)
            if before.changed.num_rows:
                then = before.rows
                differing = _differing(then, in_copy, schema)
    return BothSides(chosen, asked, position, schema.names, _row(in_source), _row(in_copy), _row(then), differing)


def _unlogged(config: Config, source: BinlogSource, table: TableId) -> Any:
    """The foreign keys that may change rows of the table outside the binlog; none without `cascades: read`."""
    tables = [table] if config.tables.of(table).cascades == "read" else []
    # with `are_logged=True`, the result is empty if the server's settings say that such changes are logged
    return source.unlogged_keys(tables, are_logged=True).keys


def _row_of_copy(versions: Versions, schema: TableSchema, version: int, key: Row) -> pa.Table:
    """The row with this key in a version of the copy; no row if the version does not have it."""
    fields = table_schema(schema)
    wanted = {name: pa.scalar(key[name], fields.field(name).type) for name in schema.key}
    for batch in versions.rows(schema, version):
        rows = pa.Table.from_batches([batch])
        matches = (pc.equal(rows[name].cast(fields.field(name).type), value) for name, value in wanted.items())
        found = rows.filter(reduce(pc.and_, matches))
        if found.num_rows:
            return found
    return fields.empty_table()


def _differing(rows: pa.Table, copy: pa.Table, schema: TableSchema) -> tuple[str, ...]:
    """The columns in which the two rows have different values; all columns if only one of the tables has a row."""
    if rows.num_rows != copy.num_rows:
        return schema.names
    # a damaged copy may have NULL where the source cannot have it
    fields = pa.schema([field.with_nullable(True) for field in table_schema(schema)])
    in_source, in_copy = (side.select(schema.names).cast(fields) for side in (rows, copy))
    key = list(schema.key)

    def is_equal(name: str) -> bool:
        """Whether this column is equal on both sides."""
        compared = [*key, name]
        differing_rows, _ = differences(in_source.select(compared), in_copy.select(compared), key)
        return not differing_rows.num_rows

    return tuple(name for name in schema.names if name not in key and not is_equal(name))


def _row(rows: pa.Table) -> Row | None:
    """The values of the table's only row; None if the table is empty."""
    found: list[Row] = rows.to_pylist()
    return found[0] if found else None


def _text(value: Any) -> str | None:
    """The value as a text, bytes as hexadecimal digits; None for NULL."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
