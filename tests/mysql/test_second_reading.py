"""The second reading of a part of the binlog: it agrees with the fast decoder, finds its faults, and names its gaps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.proofs.witness import EVERY_EVENT, FIRST_ROWS, Compared, Stint
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.second_reading import Place, second_reading
from lakeingest.mysql.witness.gaps import CHARSETS, COMPRESSED, MISREAD, OF_XA
from tests.mysql.database import Db, Read, database_on
from tests.mysql.values import values_of

pytestmark = pytest.mark.mysql

Rows = Callable[[pa.Table], pa.Table]


@dataclass
class Part:
    """A segment with the rows of the fast decoder, which a test may spoil."""

    db: Db
    segment: Segment
    schemas: dict[TableId, TableSchema]
    read: Read
    spoilt: Rows = field(default=lambda rows: rows)

    @classmethod
    def since(cls, db: Db, start: FilePosition, *schemas: TableSchema) -> "Part":
        """What the source has written since then."""
        segment = db.segment(start)
        return cls(db, segment, {schema.table: schema for schema in schemas}, db.read(segment, *schemas))

    def compare(self, first: int = 0, rows: int = FIRST_ROWS, events: int = EVERY_EVENT) -> Compared:
        """The comparison from a transaction on."""
        places = list(zip(self.read.log["file"].to_pylist(), self.read.log["pos"].to_pylist(), strict=True))

        def rows_until(table: TableId, last: Place, most: int | None) -> pa.Table:
            rows = self.spoilt(self.read.tables[table])
            held = zip(rows[change.FILE].to_pylist(), rows[change.POS].to_pylist(), strict=True)
            return rows.filter(pa.array([places[first] <= place <= last for place in held], pa.bool_())).slice(0, most)

        before = places[first - 1] if first else None
        stint = Stint(first, frozenset(self.schemas), rows, events)
        return second_reading(
            self.db.source, self.segment, self.schemas, NO_TABLES, stint, before, places[first], rows_until
        )


@pytest.fixture
def db(any_server: LocalServer) -> Iterator[Db]:
    """A database of the test's own, on each server."""
    with database_on(any_server) as database:
        yield database


def is_named(reason: str) -> bool:
    """Whether the reason is a gap that is known by name."""
    kind, _, name = reason.partition(" ")
    return reason == COMPRESSED or (kind == "type" and name in MISREAD) or (kind == "charset" and name not in CHARSETS)


@pytest.mark.long("the same on another version", only=("MariaDB 10.11",))
def test_the_values_of_every_type_are_equal_or_their_type_is_named(any_server: LocalServer, db: Db) -> None:
    """Inserts, updates from NULL and of keys, and deletes."""
    values = values_of(any_server)
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(values))
    db.run("SET sql_mode = ''", "SET foreign_key_checks = 1")
    schema = db.table("t", f"id INT PRIMARY KEY, {columns}")
    start, names = db.here(), [f"c{number}" for number in range(len(values))]
    for row in range(max(map(len, values.values()))):
        literals = [pairs[row % len(pairs)][0] for pairs in values.values()]
        db.run(f"INSERT INTO t VALUES ({row}, {', '.join(literals)})", f"INSERT INTO t (id) VALUES ({row + 50})")
        pairs = ", ".join(f"{name} = {literal}" for name, literal in zip(names, literals, strict=True))
        db.run(f"UPDATE t SET {pairs} WHERE id = {row + 50}", f"UPDATE t SET id = id + 500 WHERE id = {row + 50}")
    db.run("DELETE FROM t WHERE id >= 500")
    part = Part.since(db, start, schema)
    compared = part.compare()
    assert compared.differences == ()
    assert compared.rows == {schema.table: part.read.tables[schema.table].num_rows}
    assert [reason for reason in compared.unread if not is_named(reason)] == []
    assert len(compared.unread) > 5
    read = [column for column in schema.columns if f"type {column.source_type.name}" not in compared.unread]
    assert len(read) > 25


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_table_can_be_compared_from_any_transaction_on(db: Db) -> None:
    """The rows before it, and those after a limit, are left out; a limit may be within a transaction."""
    schema = db.table("t", "id INT PRIMARY KEY, a VARCHAR(9)")
    other = db.table("u", "id INT PRIMARY KEY")
    start = db.here()
    for number in range(9):
        db.run("BEGIN", *(f"INSERT INTO t VALUES ({number * 10 + row}, 'é{row}')" for row in range(4)))
        db.run(f"INSERT INTO u VALUES ({number})", "COMMIT")
    db.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (500, 'later')")
    part = Part.since(db, start, schema, other)
    for first in range(10):
        compared = part.compare(first)
        assert compared.differences == ()
        assert compared.rows.total() == 5 * (9 - first) + 1
        for most in (1, 3, 6):
            compared = part.compare(first, most)
            assert compared.differences == ()
            assert compared.rows.total() == min(most, 5 * (9 - first) + 1)
    assert part.compare(0, events=1).rows.total() == 5


FAULTS: dict[str, tuple[Rows, str, object, object]] = {
    "another value": (
        lambda rows: rows.set_column(rows.column_names.index("a"), "a", pa.array([1, 2, 3, -7, 5, None], pa.int32())),
        "column a",
        -7,
        4,
    ),
    "a NULL": (
        lambda rows: rows.set_column(rows.column_names.index("a"), "a", pa.array([1, None, 3, 4, 5, None], pa.int32())),
        "column a",
        None,
        2,
    ),
    "no NULL": (
        lambda rows: rows.set_column(rows.column_names.index("a"), "a", pa.array([1, 2, 3, 4, 5, 0], pa.int32())),
        "column a",
        0,
        None,
    ),
    "a lost row": (lambda rows: rows.take(pa.array([0, 1, 2, 4, 5])), "the number of row images", 1, 2),
    "a lost transaction": (lambda rows: rows.slice(1), "the number of row images", 0, 1),
    "a lost last row": (lambda rows: rows.slice(0, 5), "the number of row images", 0, 1),
    "a doubled row": (lambda rows: rows.take(pa.array([0, 1, 1, 2, 3, 4, 5])), "the number of row images", 2, 1),
    "no rows": (lambda rows: rows.slice(0, 0), "the number of row images", 0, 1),
    "another kind": (
        lambda rows: rows.set_column(
            rows.column_names.index(change.KIND),
            rows.schema.field(change.KIND),
            pa.array([0, 0, 0, 0, 3, 0], pa.int8()),
        ),
        "the kind of change",
        3,
        0,
    ),
    "another order": (lambda rows: rows.take(pa.array([0, 1, 2, 4, 3, 5])), "column id", 5, 4),
    "another place": (
        lambda rows: rows.set_column(
            rows.column_names.index(change.POS),
            rows.schema.field(change.POS),
            pc.add(rows[change.POS], pa.array([0, 0, 0, 0, 0, -1], pa.int64())),
        ),
        "the number of row images",
        1,
        0,
    ),
    "another commit time": (
        lambda rows: rows.set_column(
            rows.column_names.index(change.COMMITTED_AT),
            rows.schema.field(change.COMMITTED_AT),
            pa.array([0] * 6, pa.timestamp("us", "UTC")),
        ),
        "the commit time",
        ...,
        ...,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("each fault on one server in turn", turn="any_server")
def test_a_fault_of_the_fast_decoder_is_named(db: Db, fault: str) -> None:
    """With what it made, and what it should have made."""
    schema = db.table("t", "id INT PRIMARY KEY, a INT")
    start = db.here()
    db.run(*(f"INSERT INTO t VALUES ({number}, {number})" for number in (1, 2, 3)))
    db.run("INSERT INTO t VALUES (4, 4), (5, 5)", "INSERT INTO t VALUES (6, NULL)")
    part = Part.since(db, start, schema)
    assert part.compare().differences == ()
    spoil, what, ours, theirs = FAULTS[fault]
    [difference] = replace(part, spoilt=spoil).compare().differences
    assert (difference.table, difference.what) == (schema.table, what)
    if ours is not ...:
        assert (difference.ours, difference.theirs) == (ours, theirs)


def test_transactions_that_the_library_drops_are_named_and_the_others_compared(db: Db) -> None:
    """XA, and on MySQL compressed transactions."""
    schema = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    db.run("INSERT INTO t VALUES (1)")
    db.run("XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    db.run("XA START 'y'", "INSERT INTO t VALUES (3)", "XA END 'y'", "XA COMMIT 'y' ONE PHASE")
    db.run("XA START 'z'", "INSERT INTO t VALUES (9)", "XA END 'z'", "XA PREPARE 'z'", "XA ROLLBACK 'z'")
    expected = {OF_XA}
    if dialect(db.connection) is not MARIADB:
        expected.add(COMPRESSED)
        db.run("SET binlog_transaction_compression = ON", "INSERT INTO t VALUES (4)")
        db.run("SET binlog_transaction_compression = OFF")
    db.run("INSERT INTO t VALUES (5)")
    part = Part.since(db, start, schema)
    compared = part.compare()
    assert compared.differences == ()
    assert set(compared.unread) == expected
    assert compared.rows.total() in {2, 3}  # an XA COMMIT in one phase may be a transaction like others
    lost = replace(part, spoilt=lambda rows: rows.slice(0, rows.num_rows - 1))
    assert len(lost.compare().differences) == 1
