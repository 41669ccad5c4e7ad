import pymysql
import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.mysql.connection import query
from lakeingest.mysql.last_ddl import last_ddl
from lakeingest.mysql.wire.locking import had_exclusive_lock
from lakeingest.mysql.wire.query import Query
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

LOCK_WAIT_TIMEOUT = 1205
COLUMNS = "id INT PRIMARY KEY, v INT, w VARCHAR(5)"
PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN MAXVALUE)"

# DDL of `t` that has the table for itself
ALONE = [
    "ALTER TABLE t ADD c INT",
    "ALTER TABLE t ADD c INT, ALGORITHM = INPLACE, LOCK = NONE",
    "ALTER TABLE t DROP v, ALGORITHM = INSTANT",
    "ALTER TABLE t RENAME COLUMN v TO x, ALTER w SET DEFAULT 'a'",
    "ALTER TABLE t MODIFY v BIGINT NOT NULL",
    "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE t ORDER BY v",
    "ALTER TABLE t RENAME TO y",
    "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2",
    "ALTER TABLE t REMOVE PARTITIONING",
    "ALTER TABLE t TRUNCATE PARTITION q",
    "ALTER TABLE t DROP PARTITION q",
    "ALTER TABLE t REBUILD PARTITION q",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
    "/*!50000 ALTER TABLE `t` ADD c INT */",
    "TRUNCATE t",
    "TRUNCATE TABLE {name}.t",
    "RENAME TABLE t TO t_old, u TO t",
    "rename /* gh-ost */ table `{name}`.`t` to `{name}`.`_t_del`, `{name}`.`u` to `{name}`.`t`",
    "DROP TABLE u, t",
    "CREATE UNIQUE INDEX i ON t (v)",
    "CREATE UNIQUE INDEX i USING BTREE ON t (v) ALGORITHM = INPLACE LOCK = NONE",
    "DROP DATABASE IF EXISTS {name}",
    "DROP SCHEMA `{name}`",
]
# DDL that shares it, or of which that is not known
SHARED = [
    "ALTER TABLE t ANALYZE PARTITION q",
    "ALTER TABLE t CHECK PARTITION q",
    "ALTER TABLE T ADD c INT",
    "ALTER TABLE elsewhere.t ADD c INT",
    "ALTER TABLE u RENAME TO T",
    "ALTER TABLE u RENAME TO elsewhere.t",
    "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE elsewhere.t",
    "ALTER TABLE u UNION = (t)",
    "DROP DATABASE elsewhere",
    "CREATE UNIQUE INDEX i ON T (v)",
    "DROP INDEX i ON elsewhere.t",
    "CREATE TABLE t (id INT)",
    "REPAIR TABLE t",
    "ALTER TABLE t ADD c INT DEFAULT 'unfinished",
]


@pytest.mark.parametrize("statement", ALONE)
@pytest.mark.long("one of the statements in turn; each waits a second", turn="statement")
def test_ddl_that_has_a_table_for_itself_waits_for_a_transaction_that_has_changed_it(db: Db, statement: str) -> None:
    """So no change before it in the binlog is still to be committed."""
    schema = db.table("t", COLUMNS)
    db.table("u", COLUMNS)
    if " PARTITION" in statement or "REMOVE" in statement:
        db.run(f"ALTER TABLE t {PARTITIONS}")
    text = statement.format(name=db.name)
    assert had_exclusive_lock(Query(db.name, text), schema)
    with db.session() as writer:
        query(writer, "BEGIN")
        query(writer, "INSERT INTO t VALUES (20, 1, 'a')")
        db.run("SET SESSION lock_wait_timeout = 1")
        with pytest.raises(pymysql.err.OperationalError) as refused:
            db.run(text)
        assert refused.value.args[0] == LOCK_WAIT_TIMEOUT
        query(writer, "COMMIT")
    db.run(text, f"CREATE DATABASE IF NOT EXISTS {db.name}")


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE u RENAME TO t", "ALTER TABLE {name}.u RENAME {name}.t, COMMENT 'x'", "RENAME TABLE u TO t"],
)
@pytest.mark.long("one of the statements in turn; each waits a second", turn="statement")
def test_ddl_that_gives_a_table_its_name_waits_for_transactions_that_have_changed_it(db: Db, statement: str) -> None:
    """They changed it under its name of before."""
    db.table("u", COLUMNS)
    with db.session() as writer:
        query(writer, "BEGIN")
        query(writer, "INSERT INTO u VALUES (20, 1, 'a')")
        db.run("SET SESSION lock_wait_timeout = 1")
        text = statement.format(name=db.name)
        with pytest.raises(pymysql.err.OperationalError) as refused:
            db.run(text)
        assert refused.value.args[0] == LOCK_WAIT_TIMEOUT
        query(writer, "COMMIT")
    db.run(text, "RENAME TABLE t TO v")
    assert had_exclusive_lock(Query(db.name, text), db.table("t", COLUMNS))


def test_a_table_that_exchanges_its_rows_with_a_partition_has_them_alone(db: Db) -> None:
    """The exchange waits for transactions that have changed the table, not only those of the partition."""
    schema = db.table("t", COLUMNS)
    db.table("u", COLUMNS)
    db.run(f"ALTER TABLE u {PARTITIONS}")
    text = "ALTER TABLE u EXCHANGE PARTITION q WITH TABLE t"
    assert had_exclusive_lock(Query(db.name, text), schema)
    with db.session() as writer:
        query(writer, "BEGIN")
        query(writer, "INSERT INTO t VALUES (20, 1, 'a')")
        db.run("SET SESSION lock_wait_timeout = 1")
        with pytest.raises(pymysql.err.OperationalError) as refused:
            db.run(text)
        assert refused.value.args[0] == LOCK_WAIT_TIMEOUT
        query(writer, "COMMIT")
    db.run(text)


@pytest.mark.parametrize("statement", SHARED)
def test_in_doubt_ddl_shares_the_table(db: Db, statement: str) -> None:
    """Also where the name is spelled otherwise: on some servers that is another table."""
    assert not had_exclusive_lock(Query(db.name, statement.format(name=db.name)), db.table("t", COLUMNS))


def test_the_last_ddl_of_each_table_counts(db: Db) -> None:
    """Rows and DDL of other tables are passed over; a table without DDL is not named."""
    schemas = {schema.table: schema for schema in (db.table(name, COLUMNS) for name in ("t", "u", "o", "z"))}
    start, ends = db.here(), dict[str, FilePosition]()
    db.run(f"ALTER TABLE o {PARTITIONS}", "INSERT INTO t VALUES (1, 1, 'a')", "ALTER TABLE t ADD c INT")
    db.run("INSERT INTO t VALUES (2, 2, 'b', 2)", "ALTER TABLE t DROP w")
    ends["t"] = db.here()
    db.run("INSERT INTO t VALUES (3, 3, 3)", "TRUNCATE u")
    ends["u"] = db.here()
    db.run("CREATE TABLE other LIKE t", "ALTER TABLE other ADD e INT", "INSERT INTO z VALUES (1, 1, 'a')")
    segment = db.segment(start)
    found = {table.name: at for table, at in last_ddl(db.source, segment, schemas).items()}
    assert found == {**ends, "o": found["o"]}
    assert found["o"] is not None
    db.run("ALTER TABLE o REPAIR PARTITION q", "DROP TABLE IF EXISTS nowhere")
    found = {table.name: at for table, at in last_ddl(db.source, db.segment(start), schemas).items()}
    assert found == {**ends, "o": None}
