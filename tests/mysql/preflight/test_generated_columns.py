"""Generated columns in row images: left out by the user or by the server, and how a server is asked which it does."""

import pytest

from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Choices, TableId
from lakeingest.demo.flavor import MARIADB_11_4, MARIADB_11_8
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.connection import query_dicts
from lakeingest.mysql.preflight.generated_columns import GeneratedColumns, is_logged
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

SKIP = Choices(generated="skip")
LONG = 5_000  # characters of a generated column: an image that has it is longer
TABLE = (
    f"made TEXT AS (REPEAT(v, {LONG})) STORED, id INT PRIMARY KEY, seen INT AS (id + 1) VIRTUAL, v VARCHAR(9),"
    " kept INT AS (id * 2) STORED, w INT"
)
CHANGES = (
    "INSERT INTO t (id, v, w) VALUES (1, 'a', 1), (2, 'b', NULL), (3, NULL, 3)",
    "UPDATE t SET w = 7 WHERE id < 3",
    "UPDATE t SET v = 'c' WHERE id = 2",
    "UPDATE t SET id = 9 WHERE id = 1",
    "REPLACE INTO t (id, v, w) VALUES (3, 'd', 4)",
    "INSERT INTO t (id, v, w) VALUES (3, 'e', 5) ON DUPLICATE KEY UPDATE w = 8",
    "DELETE FROM t WHERE id = 2",
)
DELETE, INSERT, BEFORE, AFTER = RowKind.DELETE, RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER


def logs_generated_columns(db: Db) -> bool:
    """Whether an UPDATE of this server has them: asked by the length of its event alone."""
    db.run(
        f"CREATE TABLE asked (id INT PRIMARY KEY, v INT, made TEXT AS (REPEAT('x', {LONG})) STORED)",
        "INSERT INTO asked (id, v) VALUES (1, 1)",
    )
    start = db.here()
    db.run("UPDATE asked SET v = 2")
    events = query_dicts(db.connection, f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    db.run("DROP TABLE asked")
    return int(events[-1]["pos"]) - start.pos > LONG


@pytest.mark.newest
@pytest.mark.long("the same on another version", only=("MariaDB 11.8",))
def test_all_changes_are_read_without_the_skipped_columns(any_db: Db) -> None:
    """In any order of columns: the others are exact in each image, whether the server logs generated columns or not."""
    db = any_db
    db.run(f"CREATE TABLE t ({TABLE})")
    schema = read_schema(db.connection, TableId(db.name, "t"), SKIP)
    assert (schema.names, schema.skipped, schema.generated) == (("id", "v", "w"), ("made", "seen", "kept"), ())
    start = db.here()
    db.run(*CHANGES)
    found = [row[1:] for row in db.read(db.segment(start), schema).halves(schema.table, "id", "v", "w")]
    replaced = [row for row in found if row[1] == 3 and row[0] in {INSERT, DELETE, BEFORE, AFTER}]
    assert [row[1:] for row in replaced] == [(3, None, 3), (3, None, 3), (3, "d", 4), (3, "d", 4), (3, "d", 8)]
    assert [row for row in found if row[1] != 3] == [
        (INSERT, 1, "a", 1),
        (INSERT, 2, "b", None),
        (BEFORE, 1, "a", 1),
        (AFTER, 1, "a", 7),
        (BEFORE, 2, "b", None),
        (AFTER, 2, "b", 7),
        (BEFORE, 2, "b", 7),
        (AFTER, 2, "c", 7),
        (BEFORE, 1, "a", 7),
        (AFTER, 9, "a", 7),
        (DELETE, 2, "c", 7),
    ]


@pytest.mark.newest
def test_an_image_without_a_copied_generated_column_is_refused(any_db: Db) -> None:
    """On a server that does not log it, with the fix; on others its value is that of the table."""
    db = any_db
    schema = db.table("t", TABLE)
    assert schema.generated == ("made", "seen", "kept")
    is_there = logs_generated_columns(db)
    start = db.here()
    db.run(CHANGES[0])
    inserted = db.segment(start)
    assert db.read(inserted, schema).tables[schema.table]["made"].to_pylist() == ["a" * LONG, "b" * LONG, None]
    for change_ in ("UPDATE t SET w = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2"):
        start = db.here()
        db.run(change_)
        if is_there:
            rows = db.read(db.segment(start), schema).tables[schema.table].to_pylist()
            assert {row["made"] for row in rows} < {"a" * LONG, "b" * LONG}
            assert {row["kept"] - 2 * row["id"] for row in rows} == {0}
        else:
            way_out = r"lacks the generated columns made, seen, kept; leave .* out with types: \{generated: skip\}"
            with pytest.raises(UnsupportedEvent, match=rf"\.t at .*: the row image {way_out}"):
                db.read(db.segment(start), schema)


@pytest.mark.parametrize(
    "any_server", [MARIADB_11_4, MARIADB_11_8], ids=[MARIADB_11_4.name, MARIADB_11_8.name], indirect=True
)
def test_the_check_finds_out_whether_generated_columns_are_logged(any_db: Db) -> None:
    """Without an informative change it is a warning; then any table of the server decides."""
    db = any_db
    is_there = logs_generated_columns(db)
    db.run("FLUSH BINARY LOGS")
    schema, plain = db.table("t", TABLE), db.table("plain", "id INT PRIMARY KEY")
    db.run("CREATE TABLE other (id INT PRIMARY KEY, g INT AS (id) STORED)", "INSERT INTO other (id) VALUES (1), (2)")
    db.run("INSERT INTO plain VALUES (1)", "UPDATE plain SET id = 2")

    def asked() -> tuple[str | None, bool]:
        checked = GeneratedColumns(db.source, db.connection).checked([schema, plain])
        return checked.finding, checked.fatal

    assert is_logged(db.source, db.connection) is None
    finding, is_fatal = asked()
    assert not is_fatal
    assert f"({db.name}.t: made, seen, kept); a run stops at the first row image without them" in str(finding)
    with db.session() as minimal:  # which logs no column that it need not
        minimal.cursor().execute("SET binlog_row_image = MINIMAL")
        minimal.cursor().execute("INSERT INTO t (id, v) VALUES (1, 'a')")
        minimal.cursor().execute("UPDATE t SET v = 'b'")
    assert is_logged(db.source, db.connection) is None
    db.run("DELETE FROM other WHERE id = 1")
    assert is_logged(db.source, db.connection) is is_there
    finding, is_fatal = asked()
    assert finding is None if is_there else "does not log generated columns" in str(finding)
    assert is_fatal
    left_out = read_schema(db.connection, schema.table, SKIP)
    assert GeneratedColumns(db.source, db.connection).checked([left_out, plain]).finding is None


@pytest.mark.parametrize("wire", ["numba", "reference"])
def test_an_image_may_lack_skipped_columns(db: Db, monkeypatch: pytest.MonkeyPatch, wire: str) -> None:
    """For both decoders; an image that lacks others is refused."""
    monkeypatch.setenv("LAKEINGEST_WIRE", wire)
    db.run("CREATE TABLE t (made BLOB AS (REPEAT(v, 300)) STORED, id INT PRIMARY KEY, v VARCHAR(9), w INT)")
    db.run("INSERT INTO t (id, v, w) VALUES (1, 'a', 1), (2, 'b', 2)")
    schema = read_schema(db.connection, TableId(db.name, "t"), SKIP)
    whole = read_schema(db.connection, TableId(db.name, "t"))
    start = db.here()
    with db.session() as other:
        other.cursor().execute("SET binlog_row_image = NOBLOB")
        other.cursor().execute("UPDATE t SET w = 9 WHERE id = 1")
        other.cursor().execute("DELETE FROM t WHERE id = 2")
    segment = db.segment(start)
    assert [row[1:] for row in db.read(segment, schema).halves(schema.table, "id", "v", "w")] == [
        (BEFORE, 1, "a", 1),
        (AFTER, 1, "a", 9),
        (DELETE, 2, "b", 2),
    ]
    with pytest.raises(UnsupportedEvent, match="the row image lacks the generated columns made; leave generated"):
        db.read(segment, whole)
    start = db.here()
    with db.session() as other:
        other.cursor().execute("SET binlog_row_image = MINIMAL")
        other.cursor().execute("UPDATE t SET w = 10")
    with pytest.raises(UnsupportedEvent, match="row image not FULL"):
        db.read(db.segment(start), schema)
