"""debezium-json: each line has a schema and a payload, as Debezium's connector for MySQL writes them.

The lines, by the kind of change:
- An update is one line (op `u`) with the old and the new row. An update that changes the key is a delete (`d`) and a
  create (`c`), as in Debezium.
- A row that was read again is a read (`r`), as in Debezium's incremental snapshots. If a key was read again and has no
  row any more, the line is a delete, in whose schema all columns outside the key are optional.
- DDL is a schema change event (`debezium_ddl`). Later lines have the schema of the new columns. TRUNCATE is a line with
  op `t`.

`payload.source.sequence` is the position that `--since` takes. Fields that the spool does not have are null (`thread`,
`query`) or 0 (`server_id`). The module `debezium_types` has the types of columns.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lakeingest.commands.change_lines import is_truncate, json_text, positions
from lakeingest.commands.debezium_ddl import change_payload, change_schema, compact_json
from lakeingest.commands.debezium_types import connect_field, encoder
from lakeingest.core.binlog.position import FilePosition, file_name
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.pipeline.changelog.reading import Changed, Copied, Part
from lakeingest.spool.followed import Altered

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INCREMENTAL = "incremental"  # what Debezium writes into `snapshot` for rows that were read while changes went on
# The fields of `payload.source`: name, type, whether the field is optional
_FIELDS: tuple[tuple[str, str, bool], ...] = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("ts_us", "int64", True),
    ("ts_ns", "int64", True),
    ("table", "string", True),
    ("server_id", "int64", False),
    ("gtid", "string", True),
    ("file", "string", False),
    ("pos", "int64", False),
    ("row", "int32", False),
    ("thread", "int64", True),
    ("query", "string", True),
)
SOURCE = {
    "type": "struct",
    "fields": [{"type": kind, "optional": optional, "field": name} for name, kind, optional in _FIELDS],
    "optional": False,
    "name": "io.debezium.connector.mysql.Source",
    "version": 1,
    "field": "source",
}
_TRANSACTION = [
    {"type": "string", "optional": False, "field": "id"},
    {"type": "int64", "optional": False, "field": "total_order"},
    {"type": "int64", "optional": False, "field": "data_collection_order"},
]


@dataclass(frozen=True, slots=True)
class _Row:
    """One change row: its kind, its key, its values as JSON (`text`), and what `payload.source` says about the row.

    `micros` is the time of the commit in microseconds since 1970. It is None for a row that was read again, and the
    current time for a row of a copy.
    """

    kind: RowKind
    key: tuple[Any, ...]
    text: str
    position: str
    micros: int | None
    file: int
    pos: int
    ordinal: int
    gtid: str | None


@dataclass(slots=True)
class DebeziumJson:
    """Writes lines of debezium-json for one table of the pipeline named `pipeline`.

    `name` is the name of the table's changelog, and `version` the version of lakeingest. `end` is any position in the
    source's binlog: its file shows how the names of binlog files are made from their numbers.
    """

    name: str
    pipeline: str
    end: FilePosition
    version: str
    _before: _Row | None = field(default=None, init=False)  # the old row of an update whose new row is still to come

    def lines(self, part: Part) -> Iterator[str]:
        """A line for each insert, delete, update and read, or one line for DDL. The lines have no line ends.

        An update that changes the key has two lines. The old row of an update is kept until the new row comes, which
        may be in the next part.
        """
        if isinstance(part, Altered):
            yield self._ddl_line(part)
            return
        schema = part.schema
        rows = self._rows(part)
        for number, row in enumerate(rows):
            if row.kind is RowKind.UPDATE_BEFORE:
                self._before = row
                continue
            before, self._before = self._before, None  # the old row, if this row is the new row of an update
            if row.micros is None:  # a row that was read again
                yield self._reread_line(row, schema)
            elif row.kind is RowKind.UPDATE_AFTER and before is not None and before.key != row.key:
                yield self._line("d", before, schema, before.text, "null")
                yield self._line("c", row, schema, "null", row.text)
            elif row.kind is RowKind.UPDATE_AFTER and before is not None:
                yield self._line("u", row, schema, before.text, row.text)
            elif row.kind is RowKind.DELETE:
                yield self._line("d", row, schema, row.text, "null")
            elif isinstance(part, Changed):  # an insert, or a new row whose old row was read before `--since`
                yield self._line("c", row, schema, "null", row.text)
            else:  # a row of a copy
                is_last = part.last and number == len(rows) - 1
                yield self._line("r", row, schema, "null", row.text, "last" if is_last else "true")

    def _rows(self, part: Copied | Changed) -> list[_Row]:
        """The rows of a part. Rows of a copy are inserts, with the place of the copy and the current time."""
        rows, schema = part.rows, part.schema
        labelled_columns = []  # for each column, the texts `"name":value` of all rows
        for column in schema.columns:
            label, encode = f"{json_text(column.name)}:", encoder(column)
            values = rows[column.name].to_pylist()
            labelled_columns.append([label + ("null" if value is None else encode(value)) for value in values])
        texts = [f"{{{','.join(labelled)}}}" for labelled in zip(*labelled_columns, strict=True)]
        keys = list(zip(*(rows[name].to_pylist() for name in schema.key), strict=True))
        sequences = positions(part, self.name)
        if not isinstance(part, Changed):
            now, place = time.time_ns() // 1000, part.place
            return [
                _Row(RowKind.INSERT, key, text, position, now, place.file, place.pos, ordinal=0, gtid=None)
                for key, text, position in zip(keys, texts, sequences, strict=True)
            ]
        kinds = [RowKind(kind) for kind in rows[change.KIND].to_pylist()]
        origin = [rows[name].to_pylist() for name in (change.FILE, change.POS, change.ORDINAL, change.GTID)]
        times = rows[change.COMMITTED_AT].cast("int64").to_pylist()
        # the columns are in the order of the fields of _Row
        return [_Row(*fields) for fields in zip(kinds, keys, texts, sequences, times, *origin, strict=True)]

    def _reread_line(self, row: _Row, schema: TableSchema) -> str:
        """The line of a row that was read again. A key that has no row any more is a delete, with only the key."""
        if row.kind is not RowKind.DELETE:
            return self._line("r", row, schema, "null", row.text, _INCREMENTAL)
        columns = (column if column.name in schema.key else replace(column, nullable=True) for column in schema.columns)
        return self._line("d", row, replace(schema, columns=tuple(columns)), row.text, "null", _INCREMENTAL)

    def _ddl_line(self, part: Altered) -> str:
        """The line of DDL. Its `payload.source` is made from a row without values, with the DDL's place and time."""
        followed, [position] = part.followed, positions(part, self.name)
        micros, place = (followed.committed_at - _EPOCH) // timedelta(microseconds=1), followed.place
        # the kind of this row is not used
        row = _Row(RowKind.DELETE, (), "", position, micros, place.file, place.pos, ordinal=0, gtid=followed.gtid)
        if is_truncate(part):
            return self._line("t", row, followed.after, "null", "null")
        source = self._source(row, followed.after, "false")
        return compact_json({"schema": change_schema(part, SOURCE), "payload": change_payload(part, source)})

    def _line(self, op: str, row: _Row, schema: TableSchema, before: str, after: str, snapshot: str = "false") -> str:
        """A line about `row`, with the operation `op`. `before` and `after` are rows as JSON; `null` for no row."""
        source, now = compact_json(self._source(row, schema, snapshot)), time.time_ns()
        payload = (
            f'{{"before":{before},"after":{after},"source":{source},"transaction":null,"op":"{op}",'
            f'"ts_ms":{now // 1_000_000},"ts_us":{now // 1000},"ts_ns":{now}}}'
        )
        return f'{{"schema":{_line_schema(schema, self.pipeline)},"payload":{payload}}}'

    def _source(self, row: _Row, schema: TableSchema, snapshot: str) -> dict[str, Any]:
        """The document `payload.source` of a line about `row`."""
        # a row that was read again has no commit time, and gets the current time
        micros = time.time_ns() // 1000 if row.micros is None else row.micros
        return {
            "version": self.version,
            "connector": "mysql",
            "name": self.pipeline,
            "ts_ms": micros // 1000,
            "snapshot": snapshot,
            "db": schema.table.database,
            "sequence": row.position,
            "ts_us": micros,
            "ts_ns": micros * 1000,
            "table": schema.table.name,
            "server_id": 0,
            "gtid": row.gtid,
            "file": file_name(row.file, like=self.end),
            "pos": row.pos,
            "row": row.ordinal,
            "thread": None,
            "query": None,
        }


_SCHEMAS: dict[tuple[TableSchema, str], str] = {}  # the results of `_line_schema`


def _line_schema(schema: TableSchema, pipeline: str) -> str:
    """The `schema` of the lines with rows of this definition, as JSON. It is built once, and then kept."""
    if (schema, pipeline) not in _SCHEMAS:
        table = f"{pipeline}.{schema.table.database}.{schema.table.name}"
        fields = [connect_field(column) for column in schema.columns]
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"{table}.Value"}
        _SCHEMAS[schema, pipeline] = compact_json(
            {
                "type": "struct",
                "fields": [
                    row | {"field": "before"},
                    row | {"field": "after"},
                    SOURCE,
                    {
                        "type": "struct",
                        "fields": _TRANSACTION,
                        "optional": True,
                        "name": "event.block",
                        "version": 1,
                        "field": "transaction",
                    },
                    {"type": "string", "optional": False, "field": "op"},
                    *({"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")),
                ],
                "optional": False,
                "name": f"{table}.Envelope",
                "version": 2,
            }
        )
    return _SCHEMAS[schema, pipeline]
