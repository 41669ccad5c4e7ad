from dataclasses import replace

import pytest

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import NO_TABLES, Column, Kind, TableId
from lakeingest.errors import UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire.events import LOGS_CASCADES, ROW_FLAGS, Type
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.witness import rows_in
from lakeingest.mysql.witness.values import from_objects, require_readable
from tests.mysql.wire.stream import (
    FILE,
    SCHEMA,
    SOURCE,
    Schemas,
    Stream,
    gtid_body,
    query_body,
    rows_body,
    table_map_body,
)

ONE = {SCHEMA.table: SCHEMA}
MISREAD = (
    Column("c", Kind.TIME, source_type("time(6)")),
    Column("c", Kind.JSON, source_type("json")),
    Column("c", Kind.BOOLEAN, source_type("bit(1)")),
    Column("c", Kind.BINARY, source_type("bit(9)")),
    Column("c", Kind.BINARY, source_type("point")),
    Column("c", Kind.INT32, source_type("year")),
    Column("c", Kind.STRING, source_type("set('a','b')")),
    Column("c", Kind.VECTOR, source_type("vector(3)")),
)


@pytest.mark.parametrize("column", MISREAD, ids=lambda column: column.source_type)
def test_types_that_the_library_misreads_are_refused(column: Column) -> None:
    """Before any value is read; the message says what to switch off."""
    with pytest.raises(UnsupportedValue, match=r"column c \(.*\): LAKEINGEST_WIRE=reference cannot"):
        require_readable(column)
    with pytest.raises(UnsupportedValue, match="LAKEINGEST_WIRE=reference cannot"):
        from_objects(column, [None])


def test_charsets_that_python_reads_differently_are_refused() -> None:
    """The same bytes would be another text."""
    column = Column("c", Kind.STRING, source_type("varchar(9)"))
    require_readable(column, "utf8mb3")
    with pytest.raises(UnsupportedValue, match="LAKEINGEST_WIRE=reference cannot"):
        require_readable(column, "sjis")


@pytest.mark.parametrize("schemas", [NO_TABLES, {SCHEMA.table: SCHEMA}], ids=["no table", "one table"])
def test_ddl_of_a_table_that_waits_is_refused(schemas: Schemas) -> None:
    """None of its rows are read, and yet its definition would be another one."""
    waits = replace(SCHEMA, table=TableId("shop", "waits"))
    stream = Stream()
    stream.add(Type.GTID, gtid_body(1))
    stream.add(Type.QUERY, query_body("ALTER TABLE waits ADD x INT", "shop"))
    with pytest.raises(UnsupportedEvent, match="DDL that may change a copied table") as refused:
        read(stream, schemas, {waits.table: waits})
    assert refused.value.tables == {waits.table}


def test_the_tables_that_have_rows_are_told() -> None:
    """Also those that are not copied: a run looks whether it may read them."""
    stream = Stream()
    stream.begin()
    stream.insert(1)
    stream.insert(2, database="elsewhere", table_id=6)
    stream.commit()
    assert read(stream).met == {SCHEMA.table, TableId("elsewhere", "orders")}


@pytest.mark.parametrize("flags", [1, 1 | LOGS_CASCADES])
def test_rows_without_the_sign_of_logged_cascades_are_told(flags: int) -> None:
    """Then foreign keys may have changed rows that the binlog does not have."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "elsewhere", "orders"))
    rows = bytearray(rows_body(5, 1))
    rows[ROW_FLAGS] = flags
    stream.add(Type.WRITE_ROWS, bytes(rows))
    stream.commit()
    assert read(stream).lacks_cascades is (flags == 1)


def read(stream: Stream, schemas: Schemas = ONE, waiting: Schemas = NO_TABLES) -> SegmentFacts:
    """What the witness says of the whole stream, beside its rows."""
    facts = SegmentFacts()
    segment = Segment(SOURCE, 1, stream.start, FilePosition(FILE, stream.pos), GtidSet())
    list(rows_in(stream.raw, segment, stream.start, schemas, waiting, facts, gtids=True))
    return facts
