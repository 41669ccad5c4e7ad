import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pytest

from lakeingest.core.binlog.position import FilePosition, GtidSet, Place
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.core.waves.splits import Split
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    ChunkTooLarge,
    ChunkTooSlow,
    OperatorNeeded,
    SchemaChanged,
    SplitUnstable,
    UnsupportedValue,
)
from lakeingest.mysql.chunk_reader import (
    PACED_SECONDS,
    Cap,
    ChunkRead,
    Hooks,
    read_chunk,
    server_state,
)
from lakeingest.mysql.connection import query
from lakeingest.mysql.key_space import estimated_bytes, estimated_rows, key_bounds, next_boundary
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.rows import table_schema
from tests.mysql import witness
from tests.mysql.database import EPOCH, Db, database_on
from tests.mysql.values import VALUES

pytestmark = pytest.mark.mysql

OTHER_SERVER = "00000000-0000-0000-0000-000000000000"
EVERYTHING, NO_HOOKS, UNCAPPED = KeyRange(), Hooks(), Cap()
STEPS = ("after_low", "after_view", "after_high", "after_rows")
PLAIN = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@dataclass
class Journal:
    """What a test does between the steps of a read, and what it saw there."""

    db: Db
    executed: dict[str, GtidSet] = field(default_factory=dict)
    written: dict[str, FilePosition] = field(default_factory=dict)

    def hooks(self, **statements: str) -> Hooks:
        """Hooks that note the positions before and after a statement is run."""
        return Hooks(**{step: self._step(step, statements.get(step)) for step in STEPS})

    def _step(self, step: str, statement: str | None) -> Callable[[], None]:
        def act() -> None:
            if statement:
                self.db.run(statement)
            self.executed[step] = server_state(self.db.connection).executed or GtidSet()
            self.written[step] = self.db.here()

        return act

    def high(self, step: str) -> Place:
        """The written position after a step."""
        return self.written[step].place(EPOCH)


@pytest.fixture
def db(any_db: Db) -> Db:
    """A database on a server of each flavor."""
    return any_db


@pytest.fixture
def plain_db(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on a server without GTIDs."""
    with database_on(mysql_server_with(**PLAIN)) as database:
        yield database


def test_a_text_without_unicode_is_refused(db: Db) -> None:
    """The server would send a question mark or U+FFFD for it, which is not the value of the table."""
    schema = db.table("t", "id INT PRIMARY KEY, g VARCHAR(5) CHARACTER SET greek")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, _greek x'41'), (2, _greek x'41A4')")
    with pytest.raises(UnsupportedValue, match="column g"):
        read(db, schema)
    with pytest.raises(UnsupportedValue, match="column g"):
        db.read(db.segment(start), schema)


def numbers(db: Db, *ids: int) -> TableSchema:
    """A table with these ids."""
    schema = db.table("t", "id INT PRIMARY KEY, v INT DEFAULT 0")
    db.run(*(f"INSERT INTO t (id) VALUES ({i})" for i in ids))
    return schema


def read(
    db: Db, schema: TableSchema, keys: KeyRange = EVERYTHING, hooks: Hooks = NO_HOOKS, cap: Cap = UNCAPPED
) -> ChunkRead:
    """Read a chunk of the table on this server."""
    uuid = server_state(db.connection).uuid
    return read_chunk(db.source, schema, Chunk(schema.table, keys), uuid, EPOCH, hooks, cap)


def window(found: ChunkRead) -> tuple[GtidSet, Place]:
    """The watermarks of a chunk from a server with GTIDs."""
    low, high = found.split.low, found.split.high
    assert isinstance(low, GtidSet)
    assert high is not None
    return low, high


def ids(rows: pa.Table) -> list[int]:
    """The ids of the rows, sorted."""
    return sorted(rows["id"].to_pylist())


def test_a_chunk_without_concurrent_changes_has_its_rows_and_watermarks(mysql_db: Db) -> None:
    """Low is what is executed, high is what is written, and the split is read, not merged."""
    schema = numbers(mysql_db, 1, 2)
    found = read(mysql_db, schema)
    assert found.rows.schema == table_schema(schema)
    assert found.rows.to_pylist() == [{"id": 1, "v": 0}, {"id": 2, "v": 0}]
    assert found.high == mysql_db.here()
    assert found.split == Split(KeyRange(), GtidSet.parse(mysql_db.executed()), found.high.place(EPOCH))


def test_a_change_between_low_and_view_is_in_the_rows_and_not_in_low(mysql_db: Db) -> None:
    """The merge applies it again, which changes nothing."""
    schema, journal = numbers(mysql_db, 1), Journal(mysql_db)
    found = read(mysql_db, schema, hooks=journal.hooks(after_low="INSERT INTO t VALUES (2, 20)"))
    low, high = window(found)
    assert ids(found.rows) == [1, 2]
    assert low <= journal.executed["after_low"]
    assert not journal.executed["after_low"] <= low
    assert journal.high("after_low") <= high


def test_a_change_between_view_and_high_is_not_in_the_rows_but_within_high(mysql_db: Db) -> None:
    """The view is fixed; the change is in the window, so the merge brings it."""
    schema, journal = numbers(mysql_db, 1), Journal(mysql_db)
    statement = "UPDATE t SET v = 7"
    found = read(mysql_db, schema, hooks=journal.hooks(after_view=statement))
    low, high = window(found)
    assert found.rows.to_pylist() == [{"id": 1, "v": 0}]
    assert not journal.executed["after_view"] <= low
    assert journal.written["after_low"].place(EPOCH) < high == journal.high("after_view")


@pytest.mark.parametrize("step", ["after_high", "after_rows"])
def test_high_is_read_before_the_rows(mysql_db: Db, step: str) -> None:
    """A change after it is in neither: the window stays as short as the steps before the rows."""
    schema, journal = numbers(mysql_db, 1), Journal(mysql_db)
    found = read(mysql_db, schema, hooks=journal.hooks(**{step: "DELETE FROM t"}))
    _, high = window(found)
    assert ids(found.rows) == [1]
    assert high == journal.high("after_view") < journal.high(step)


def test_a_transaction_that_is_open_at_low_is_in_no_watermark(mysql_db: Db) -> None:
    """It commits after the view: its rows are not in the chunk, not in low, and after high."""
    schema, journal = numbers(mysql_db, 1), Journal(mysql_db)
    with mysql_db.session() as other:
        query(other, "BEGIN")
        query(other, "INSERT INTO t VALUES (2, 0)")
        found = read(mysql_db, schema, hooks=journal.hooks())
        query(other, "COMMIT")
    assert ids(found.rows) == [1]
    assert found.high == journal.written["after_low"] != mysql_db.here()


def test_without_gtids_low_is_the_start_of_the_file_current_before_the_view(plain_db: Db) -> None:
    """A rotation waits for earlier commits, so the view sees everything before the file."""
    schema, journal = numbers(plain_db, 1), Journal(plain_db)
    plain_db.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 0)")
    before = plain_db.here()
    found = read(plain_db, schema, hooks=journal.hooks(after_low="FLUSH BINARY LOGS"))
    assert ids(found.rows) == [1, 2]
    assert found.split.low == FilePosition(before.file, 4).place(EPOCH)
    assert found.split.high == journal.high("after_low") > before.place(EPOCH)
    assert found.high.number == before.number + 1


@pytest.mark.parametrize(
    "keys", [KeyRange(), KeyRange((3,), None), KeyRange(None, (3,)), KeyRange((2,), (4,)), KeyRange((9,), (10,))]
)
@pytest.mark.long("each key on one server in turn", turn="any_server")
def test_a_chunk_has_exactly_the_keys_of_its_range(db: Db, keys: KeyRange) -> None:
    """Including the lower bound, excluding the upper."""
    schema = numbers(db, 1, 2, 3, 4, 5)
    found = read(db, schema, keys)
    assert ids(found.rows) == [i for i in range(1, 6) if (i,) in keys]
    assert found.split.range == keys


def test_chunks_of_a_composite_key_tile_the_table(db: Db) -> None:
    """Ranges of several columns, signed and unsigned, up to the limits of their types."""
    schema = db.table("t", "a INT, b BIGINT UNSIGNED, PRIMARY KEY (b, a)")
    everything = sorted((b, a) for b in (0, 1, 2**63, 2**64 - 1) for a in (-(2**31), -1, 0, 2**31 - 1))
    db.run("INSERT INTO t (b, a) VALUES " + ", ".join(map(str, everything)))
    bounds = [None, (0, 0), (1, -1), (1, 5), (2**64 - 1, 0), None]
    seen: list[Key] = []
    for lower, upper in pairwise(bounds):
        rows = read(db, schema, KeyRange(lower, upper)).rows.to_pylist()
        part = sorted((int(row["b"]), row["a"]) for row in rows)
        assert part == [key for key in everything if key in KeyRange(lower, upper)]
        seen += part
    assert seen == everything


@pytest.mark.parametrize("step", ["after_low", "after_view", "after_high"])
@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t ADD COLUMN w INT",
        "ALTER TABLE t ADD COLUMN w INT FIRST, ALGORITHM = COPY",
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t MODIFY v BIGINT",
        "ALTER TABLE t MODIFY v INT FIRST",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
    ],
)
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("each statement on one server in turn", turn="any_server")
def test_a_definition_that_changes_before_the_rows_stops_the_read(db: Db, step: str, ddl: str) -> None:
    """It is read again, or the table is copied again, but never read with wrong columns."""
    schema = numbers(db, 1)
    db.run("ALTER TABLE t MODIFY v INT NOT NULL")
    schema = read_schema(db.connection, schema.table)
    with pytest.raises((SplitUnstable, SchemaChanged)):
        read(db, schema, hooks=Journal(db).hooks(**{step: ddl}))


@pytest.mark.parametrize("step", ["after_low", "after_view", "after_high"])
@pytest.mark.long("each step on one server in turn", turn="any_server")
def test_two_columns_that_swap_their_names_stop_the_read(db: Db, step: str) -> None:
    """Such an ALTER is instant and the view stays valid, so the definition must not be read in the view."""
    schema = db.table("t", "id INT PRIMARY KEY, a INT, b INT")
    db.run("INSERT INTO t VALUES (1, 10, 20)")
    swap = Journal(db).hooks(**{step: "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"})
    with pytest.raises((SplitUnstable, SchemaChanged)):
        read(db, schema, hooks=swap)


@pytest.mark.parametrize("step", ["after_view", "after_high"])
def test_a_truncate_after_the_view_makes_the_split_unstable(db: Db, step: str) -> None:
    """The view is older than the new table; an empty result would be wrong."""
    schema = numbers(db, 1)
    with pytest.raises(SplitUnstable):
        read(db, schema, hooks=Journal(db).hooks(**{step: "TRUNCATE t"}))


def test_another_server_makes_the_split_unstable(db: Db) -> None:
    """Watermarks are valid only on their server."""
    schema = numbers(db, 1)
    with pytest.raises(SplitUnstable, match=OTHER_SERVER):
        read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), OTHER_SERVER, EPOCH)


def test_commits_out_of_order_need_an_operator(mysql_db: Db) -> None:
    """gtid_executed could have gaps; with the fix of the message the chunk can be read."""
    schema = numbers(mysql_db, 1)
    mysql_db.run("SET GLOBAL binlog_order_commits = OFF")
    try:
        with pytest.raises(OperatorNeeded, match="binlog_order_commits"):
            read(mysql_db, schema)
    finally:
        mysql_db.run("SET GLOBAL binlog_order_commits = ON")
    assert ids(read(mysql_db, schema).rows) == [1]


def test_values_of_every_kind_arrive_exact_by_chunk_and_by_binlog(mysql_db: Db) -> None:
    """Least and greatest values, fractions, padding, zero bytes and NULL, the same on both paths."""
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(VALUES))
    schema = mysql_db.table("t", f"{columns}, id INT PRIMARY KEY")
    assert {column.kind for column in schema.columns} == witness.USUAL
    rows = [[pairs[i % len(pairs)] for pairs in VALUES.values()] for i in range(max(map(len, VALUES.values())))]
    rows.append([("NULL", None)] * len(VALUES))
    start = mysql_db.here()
    for number, row in enumerate(rows):
        mysql_db.run(f"INSERT INTO t VALUES ({', '.join(literal for literal, _ in row)}, {number})")
    found = read(mysql_db, schema).rows
    for source_type, column, number in zip(VALUES, found.columns, range(len(VALUES)), strict=False):
        assert list(map(repr, column.to_pylist())) == [repr(row[number][1]) for row in rows], source_type
    logged = mysql_db.read(mysql_db.segment(start), schema).tables[schema.table].select(list(schema.names))
    assert logged.schema == found.schema
    assert repr(logged.to_pylist()) == repr(found.to_pylist())


@pytest.mark.parametrize(
    ("source_type", "value"),
    [("DATE", "'0000-00-00'"), ("DATE", "'2024-02-00'"), ("DATETIME", "'0000-00-00'"), ("TIMESTAMP NULL", "0")],
)
@pytest.mark.long("each date on one server in turn", turn="any_server")
def test_a_zero_or_partial_date_is_refused_by_column(db: Db, source_type: str, value: str) -> None:
    """It is not rounded, and not made NULL."""
    schema = db.table("t", f"id INT PRIMARY KEY, when_ {source_type}")
    db.run(f"INSERT INTO t VALUES (1, NULL), (2, {value})")
    with pytest.raises(UnsupportedValue, match="when_"):
        read(db, schema)


def test_a_chunk_of_several_fetches_is_whole(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in several batches; the last one is not full."""
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    monkeypatch.setattr("lakeingest.mysql.text_rows.FETCH_ROWS", 4)
    assert ids(read(db, numbers(db, *range(10))).rows) == list(range(10))


def wide(db: Db, *sizes: int) -> TableSchema:
    """A table with texts of these sizes."""
    schema = db.table("w", "id INT PRIMARY KEY, v LONGTEXT")
    db.run(*(f"INSERT INTO w VALUES ({i}, REPEAT('x', {size}))" for i, size in enumerate(sizes)))
    return schema


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_fetches_of_python_objects_are_bounded_by_their_bytes(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fetch is a single row; later ones grow gradually to the limit."""
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    monkeypatch.setattr("lakeingest.mysql.text_rows.FETCH_BYTES", 10_000)
    schema = wide(db, *[10] * 200)
    assert [batch.num_rows for batch in read(db, schema).rows.to_batches()] == [1, 10, 100, 89]
    db.run("UPDATE w SET v = REPEAT('x', 4000) WHERE id > 191", "DELETE FROM w WHERE id <= 191")
    assert [batch.num_rows for batch in read(db, schema).rows.to_batches()] == [1, 2, 2, 2, 1]


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
def test_a_chunk_over_its_limit_of_seconds_is_stopped_by_the_server(db: Db) -> None:
    """The message says what to set; without the limit the same chunk is read."""
    schema = wide(db, *[5_000_000] * 8)
    with pytest.raises(ChunkTooSlow, match=r"(execution time|max_statement_time) exceeded.*; set a smaller chunk_rows"):
        read(db, schema, cap=Cap(seconds=0.001))
    assert read(db, schema).rows.num_rows == 8


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_chunk_over_its_limit_of_bytes_is_stopped_by_the_reader(db: Db) -> None:
    """Without fetching the rest of it."""
    schema = wide(db, *[1000] * 50)
    with pytest.raises(ChunkTooLarge, match=r"w: a chunk has more than 20,000 bytes; set a smaller chunk_rows"):
        read(db, schema, cap=Cap(bytes=20_000))
    assert read(db, schema, cap=Cap(bytes=60_000)).rows.num_rows == 50


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_chunk_is_read_at_a_pace(db: Db) -> None:
    """The server waits between its parts; a chunk that is too large for the pace is not held open for it."""
    schema = wide(db, *[100_000] * 50)
    began = time.monotonic()
    rows = read(db, schema, cap=Cap(bytes_per_second=2_500_000)).rows
    assert rows.num_rows == 50
    assert time.monotonic() - began >= rows.nbytes / 2_500_000
    assert Cap(bytes_per_second=10.0).pause(50, 1.0) == 4.0
    assert Cap(bytes_per_second=10.0).pause(50, 6.0) == 0.0
    assert Cap(bytes_per_second=10.0).pause(5_000, PACED_SECONDS - 1.0) == 1.0
    assert Cap().pause(50, 0.0) == 0.0


def test_estimated_bytes_include_long_texts(db: Db) -> None:
    """Also texts that InnoDB stores outside the rows; and statistics are not cached."""
    schema = wide(db)
    assert estimated_bytes(db.connection, schema) < 10**5
    db.run(*(f"INSERT INTO w VALUES ({i}, REPEAT('x', 300000))" for i in range(20)), "ANALYZE TABLE w")
    assert 20 * 300_000 < estimated_bytes(db.connection, schema) < 3 * 20 * 300_000


def test_an_empty_table_is_an_empty_chunk(db: Db) -> None:
    """With the table's columns, and both watermarks."""
    schema = numbers(db)
    found = read(db, schema)
    assert found.rows.schema == table_schema(schema)
    assert found.rows.num_rows == 0
    assert key_bounds(db.connection, schema) is None
    assert next_boundary(db.connection, schema, None, 1) is None
    assert next_boundary(db.connection, schema, (5,), 1) is None
    assert 0 <= estimated_rows(db.connection, schema) <= 1


def test_key_bounds_are_the_least_and_the_greatest_key(db: Db) -> None:
    """Negative keys, and unsigned keys above the signed range."""
    assert key_bounds(db.connection, numbers(db, -5, 0, 7)) == (-5, 7)
    schema = db.table("u", "id BIGINT UNSIGNED PRIMARY KEY")
    db.run("INSERT INTO u VALUES (18446744073709551615), (3)")
    assert key_bounds(db.connection, schema) == (3, 2**64 - 1)


def test_boundaries_are_in_key_order(db: Db) -> None:
    """Each is the key so many rows after the last; None when fewer follow."""
    schema = numbers(db, 1, 3, 4, 8, 10)
    assert [next_boundary(db.connection, schema, (1,), rows) for rows in (1, 4, 5)] == [(3,), (10,), None]
    assert next_boundary(db.connection, schema, None, 2) == (4,)
    assert next_boundary(db.connection, schema, (2,), 1) == (4,)  # of a bound that is no key, too


def test_estimated_rows_are_close_to_the_number_of_rows(mysql_db: Db) -> None:
    """It is the optimizer's estimate, which needs no scan."""
    schema = tenants(mysql_db)
    assert TENANTS * EACH / 2 < estimated_rows(mysql_db.connection, schema) < TENANTS * EACH * 2
    assert reads(mysql_db, lambda: estimated_rows(mysql_db.connection, schema)) < 100


TENANTS, EACH = 3, 2_000  # few values of the first key column with many rows each: the hard case of a composite key


def tenants(db: Db) -> TableSchema:
    """A table with a key of two columns."""
    schema = db.table("t", "v CHAR(20), tenant INT, id INT, PRIMARY KEY (tenant, id)")
    db.run(
        f"SET SESSION cte_max_recursion_depth = {EACH}",
        f"INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EACH})"
        f" SELECT 'x', tenant, i FROM n, (VALUES {', '.join(f'ROW({i})' for i in range(TENANTS))}) AS a (tenant)",
        "ANALYZE TABLE t",
    )
    return schema


def reads(db: Db, act: Callable[[], object]) -> int:
    """The rows and index entries that the server touches for what is done on this connection; none may be sorted."""
    db.run("FLUSH STATUS")
    act()
    status = "SHOW SESSION STATUS WHERE Variable_name RLIKE '^(Handler_read|Sort_)'"
    counts = {name: int(value) for name, value in query(db.connection, status)}
    assert counts["Sort_rows"] == counts["Handler_read_rnd"] == counts["Handler_read_rnd_next"] == 0
    return sum(value for name, value in counts.items() if name.startswith("Handler_read"))


@pytest.mark.parametrize("lower", [None, (0, 1990), (1, 1900), (2, 1000)])
def test_a_boundary_of_a_composite_key_reads_only_the_rows_it_counts(mysql_db: Db, lower: Key | None) -> None:
    """No sort, no scan of the table, and no scan of the rows of the tenant before `lower`."""
    schema = tenants(mysql_db)
    everything: list[Key] = [(tenant, i) for tenant in range(TENANTS) for i in range(1, EACH + 1)]
    first = 0 if lower is None else everything.index(lower)
    found: list[Key | None] = []
    touched = reads(mysql_db, lambda: found.append(next_boundary(mysql_db.connection, schema, lower, 50)))
    assert found == [everything[first + 50]]
    assert touched < 60


def test_a_chunk_of_a_composite_key_reads_only_its_own_rows(mysql_db: Db) -> None:
    """The index can use the condition of a range at both ends."""
    schema = tenants(mysql_db)
    for keys, rows in (
        (KeyRange((1, 1000), (1, 1050)), 50),
        (KeyRange((0, 1990), (1, 41)), 51),
        (KeyRange((2, 1990), None), 11),
        (KeyRange(None, (0, 31)), 30),
    ):
        sql = f"SELECT * FROM t WHERE {keys.predicate(schema.key)}"
        assert len(query(mysql_db.connection, sql)) == rows
        assert reads(mysql_db, lambda sql=sql: query(mysql_db.connection, sql)) < rows + 10  # type: ignore[misc]
