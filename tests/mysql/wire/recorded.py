"""What a real server sent: a dump of its binlog, and result sets; `python -m tests.mysql.wire.recorded` records it."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.demo.server import local_server
from lakeingest.mysql.connection import query
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire import result_set
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.segment import SegmentDecoder
from tests.mysql.database import Db, database_on

FOLDER = Path(__file__).parent / "corpus"
_ABOUT = FOLDER / "about.json"


@dataclass(frozen=True)
class Rows:
    """A result set: its table, the columns as the server described them, the bytes from its first row on."""

    schema: TableSchema
    definitions: tuple[Sent, ...]
    sequence: int
    data: bytes


@dataclass(frozen=True)
class Dump:
    """The bytes of a dump, for a segment of these tables."""

    segment: Segment
    schemas: dict[TableId, TableSchema]
    data: bytes

    @property
    def events(self) -> list[bytes]:
        """Each event, with its checksum."""
        return [payload[1:] for payload in payloads(self.data) if payload[0] == 0]


def payloads(data: bytes) -> Iterator[bytes]:
    """The payload of each packet."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def recorded_dump() -> Dump:
    """The dump of the corpus."""
    about = json.loads(_ABOUT.read_text())
    schemas = [_schema(one) for one in about["tables"]]
    start, stop = (FilePosition.parse(about[name]) for name in ("start", "stop"))
    segment = Segment(about["uuid"], 1, start, stop, GtidSet())
    return Dump(segment, {schema.table: schema for schema in schemas}, (FOLDER / "dump.bin").read_bytes())


def recorded_rows() -> list[Rows]:
    """The result sets of the corpus: of each table all its rows."""
    about = json.loads(_ABOUT.read_text())
    return [
        Rows(
            _schema(table),
            tuple(
                Sent(**{**one, "type": FieldType(one["type"]), "members": tuple(one["members"])})
                for one in result["definitions"]
            ),
            result["sequence"],
            (FOLDER / f"{table['table']['name']}.bin").read_bytes(),
        )
        for table, result in zip(about["tables"], about["results"], strict=True)
    ]


def _schema(read: dict[str, Any]) -> TableSchema:
    columns = tuple(
        Column(**{**one, "kind": Kind(one["kind"]), "source_type": source_type(one["source_type"])})
        for one in read["columns"]
    )
    return TableSchema(TableId(**read["table"]), columns, tuple(read["key"]))


def _written(schema: TableSchema) -> dict[str, Any]:
    """The inverse of `_schema`."""
    columns = [asdict(column) | {"source_type": column.source_type.text} for column in schema.columns]
    return {"table": asdict(schema.table), "columns": columns, "key": schema.key}


TABLES = {
    "numbers": "id INT PRIMARY KEY, ti TINYINT, su SMALLINT UNSIGNED, mi MEDIUMINT, iu INT UNSIGNED, bi BIGINT,"
    " bu BIGINT UNSIGNED, f FLOAT, db DOUBLE, d DECIMAL(38,10), d2 DECIMAL(5,5), d3 DECIMAL(9,2), n DECIMAL(65,30),"
    " y YEAR, b1 BIT, b9 BIT(9)",
    "moments": "id BIGINT PRIMARY KEY, da DATE, dt DATETIME, dt1 DATETIME(1), dt6 DATETIME(6), ts TIMESTAMP NULL,"
    " ts3 TIMESTAMP(3) NULL, tm TIME, tm2 TIME(2), tm6 TIME(6)",
    "texts": "id INT UNSIGNED PRIMARY KEY, v VARCHAR(20), w VARCHAR(300), l VARCHAR(20) CHARACTER SET latin1,"
    " u CHAR(9) CHARACTER SET ucs2, s TEXT CHARACTER SET sjis, e ENUM('a','ü','c') NOT NULL, st SET('x','y','z'),"
    " j JSON",
    "bytes": "id INT PRIMARY KEY, bn BINARY(6), vn VARBINARY(300), bl BLOB, tb TINYBLOB, g GEOMETRY, ve VECTOR(3)",
    "wide": "id INT PRIMARY KEY, " + ", ".join(f"c{i} TINYINT" for i in range(60)),
}
VALUES = {
    "numbers": "-5, 65535, -8388608, 4000000000, -9223372036854775808, 18446744073709551615, 1.1, -5e-324,"
    " -1234567890123456789012345678.0123456789, 0.99999, -7.25, 99999999999999999999999999999999999.5, 2024, b'1', 300",
    "moments": "'2024-02-29', '9999-12-31 23:59:59', '1000-01-01 00:00:00.9', '2024-02-29 12:34:56.000001',"
    " '2038-01-19 03:14:07', '1970-01-01 00:00:01.5', '-838:59:59', '-0:00:00.01', '100:00:00.000001'",
    "texts": "'grüße 😀', REPEAT('é', 130), 'é€', '中é', '表ソ', 'ü', 'x,z',"
    """ '{"b": [1, 2.5, null, true, -7], "a": "ü", "d": {"x": 18446744073709551615, "y": 1e100}}'""",
    "bytes": "x'010200', REPEAT(x'FF00', 140), x'00', '', ST_GeomFromText('POINT(10 20)', 4326),"
    " TO_VECTOR('[1.1, -2, 3e30]')",
    "wide": ", ".join(str(i % 200 - 100) for i in range(60)),
}


def _changes(db: Db) -> None:
    """Transactions of all sorts."""
    for name, values in VALUES.items():
        db.run("BEGIN", f"INSERT INTO {name} VALUES (1, {values}), (2, {values})")
        db.run(f"INSERT INTO {name} (id) VALUES (3)", "COMMIT")
        db.run(f"UPDATE {name} SET id = id + 10 WHERE id < 3", f"DELETE FROM {name} WHERE id = 12")
    db.run("CREATE TABLE beside (id INT PRIMARY KEY)", "BEGIN")
    for i in range(20, 24):
        db.run(*(f"INSERT INTO {name} VALUES ({i}, {values})" for name, values in VALUES.items() if name != "wide"))
        db.run(f"INSERT INTO beside VALUES ({i})", "SAVEPOINT s")
    db.run("COMMIT", "FLUSH TABLES")
    for statement in ("SET binlog_transaction_compression = ON", "SET gtid_next = 'AUTOMATIC:tag'"):
        with db.session() as other:
            query(other, statement)
            for i in (30, 31):
                first = i if "compression" in statement else i + 10
                query(other, "BEGIN")
                for name, values in VALUES.items():
                    query(other, f"INSERT INTO {name} VALUES ({first}, {values})")
                    query(other, f"UPDATE {name} SET id = id + 100 WHERE id = {first}")
                query(other, "COMMIT")
    db.run("FLUSH BINARY LOGS")
    for i in range(50, 70):
        db.run(f"INSERT INTO moments VALUES ({i}, {VALUES['moments']})", f"INSERT INTO beside VALUES ({i})")


@contextlib.contextmanager
def _listening(reader: type[Any]) -> Iterator[list[bytes]]:
    """All bytes that readers of that class take meanwhile."""
    heard: list[bytes] = []
    take: Callable[[Any, int], Iterator[Any]] = reader.take

    def listen(self: Any, count: int) -> Iterator[Any]:
        heard.append(bytes(self.free_space()[:count]))
        return take(self, count)

    with mock.patch.object(reader, "take", listen):
        yield heard


def record() -> None:
    """Write the corpus, from a server of our own."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, local_server(Path(folder)) as server, database_on(server) as db:
        schemas = [db.table(name, columns) for name, columns in TABLES.items()]
        start = db.here()
        _changes(db)
        segment = db.segment(start)
        with _listening(SegmentDecoder) as heard:
            db.read(segment, *schemas)
        (FOLDER / "dump.bin").write_bytes(b"".join(heard))
        results = [_result(db, schema) for schema in schemas]
    about = {
        "uuid": segment.server_uuid,
        "start": str(segment.start),
        "stop": str(segment.stop),
        "tables": [_written(schema) for schema in schemas],
        "results": results,
    }
    _ABOUT.write_text(json.dumps(about) + "\n")


def _result(db: Db, schema: TableSchema) -> dict[str, Any]:
    """Write the result set of a table; what was said of it."""
    said: dict[str, Any] = {}

    class Listening(result_set.ResultSet):
        def __init__(self, schema: TableSchema, definitions: Sequence[Sent], sequence: int) -> None:
            said.update(definitions=[asdict(one) for one in definitions], sequence=sequence)
            super().__init__(schema, definitions, sequence)

    with mock.patch.object(result_set, "ResultSet", Listening), _listening(Listening) as heard:
        db.select(schema)
    (FOLDER / f"{schema.table.name}.bin").write_bytes(b"".join(heard))
    return said


if __name__ == "__main__":
    record()
