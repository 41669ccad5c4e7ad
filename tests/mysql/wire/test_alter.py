"""What an ALTER TABLE does to columns is read, or the statement has no answer."""

from dataclasses import replace

import pytest

from lakeingest.core.ddl.alteration import FIRST, Act, Alteration, Change
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.mysql.wire.alter import alteration_of, name_changes_of
from lakeingest.mysql.wire.ddl import may_change
from tests.mysql.wire.test_ddl import COPIED, query

SCHEMA = COPIED[TableId("shop", "orders")]
ADD, DROP, DEFINE, RENAME = Act.ADD, Act.DROP, Act.DEFINE, Act.RENAME


LITERALS = (
    *("5", "-5", "+ 5", "1.5", ".5", "5.", "1e5", "1.5E-3", "-.5e+3", "0xFF", "0b101", "x'4A'", "B'101'", "NULL"),
    *("true", "FALSE", "''", "'a' 'b'", '"a"', "- -5"),
)


def added(name: str, after: str | None = None) -> Change:
    """A column that is new."""
    return Change(ADD, name, name, after)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("ALTER TABLE orders ADD c INT", [added("c")]),
        ("alter table `Shop`.`orders` add column `c d` int unsigned not null default 5 after id", [added("c d", "id")]),
        ("ALTER TABLE orders ADD c VARCHAR(10) DEFAULT 'a, b' COMMENT 'it''s' FIRST", [added("c", FIRST)]),
        ("ALTER TABLE orders ADD c DECIMAL(10, 2) NULL DEFAULT -1.5, ALGORITHM=INSTANT, LOCK=NONE", [added("c")]),
        ("ALTER TABLE orders ADD (a INT, b ENUM('x', 'y')), ADD INDEX i (a)", [added("a"), added("b")]),
        ("ALTER TABLE orders /* why */ ADD c INT -- so", [added("c")]),
        ("ALTER TABLE orders ADD c INT /*!50606 STORAGE DISK */ /*!50606 COLUMN_FORMAT DYNAMIC */", [added("c")]),
        ("ALTER TABLE orders ADD `key` BIT(3) DEFAULT b'101'", [added("key")]),
        ("ALTER ONLINE TABLE IF EXISTS orders WAIT 5 ADD c INT", [added("c")]),
        *((f"ALTER TABLE orders ADD c INT DEFAULT {literal} NOT NULL", [added("c")]) for literal in LITERALS),
        *((f"ALTER TABLE orders ADD c INT NOT NULL DEFAULT {literal}", [added("c")]) for literal in LITERALS),
        ("ALTER TABLE orders DROP COLUMN c, ADD c BIGINT", [Change(DROP, "c", "c"), added("c")]),
        ("ALTER TABLE orders RENAME COLUMN a TO b", [Change(RENAME, "a", "b")]),
        ("ALTER TABLE orders MODIFY c BIGINT NULL AFTER a", [Change(DEFINE, "c", "c", "a")]),
        ("ALTER TABLE orders CHANGE COLUMN c d VARCHAR(99)", [Change(DEFINE, "c", "d")]),
    ],
)
def test_the_columns_and_their_places_are_read(text: str, changes: list[Change]) -> None:
    """In the order of the statement; what changes nothing that is copied is left out."""
    found = alteration_of(query(text), SCHEMA)
    assert found is not None
    assert list(found.changes) == changes


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE orders ADD c INT PRIMARY KEY",
        "ALTER TABLE orders ADD c INT UNIQUE",
        "ALTER TABLE orders ADD c INT AUTO_INCREMENT KEY",
        "ALTER TABLE orders ADD c INT AS (id + 1)",
        "ALTER TABLE orders ADD c INT GENERATED ALWAYS AS (id + 1) STORED",
        "ALTER TABLE orders ADD c INT DEFAULT (1 + 1)",
        "ALTER TABLE orders ADD c TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
        "ALTER TABLE orders ADD c TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP",
        "ALTER TABLE orders ADD c INT CHECK (c > 1)",
        "ALTER TABLE orders ADD c INT REFERENCES x (id)",
        "ALTER TABLE orders ADD c INT PARTITION BY HASH (id)",
        "ALTER TABLE orders ADD c INT REMOVE PARTITIONING",
        "ALTER TABLE orders ADD c INT /*!80023 INVISIBLE */",
        "ALTER TABLE orders ADD c SERIAL DEFAULT VALUE",
        "ALTER TABLE orders ADD c INT SERIAL DEFAULT VALUE",
        "ALTER TABLE orders ADD c SERIAL",
        "ALTER TABLE orders MODIFY c serial",
        "ALTER TABLE orders ADD c INT DEFAULT comment",
        "ALTER TABLE orders ADD c INT DEFAULT b",
        "ALTER TABLE orders ADD c INT DEFAULT -x",
        "ALTER TABLE orders ADD c INT DEFAULT 1 + comment",
        "ALTER TABLE orders ADD c INT DEFAULT 1a",
        "ALTER TABLE orders ADD c INT DEFAULT 1e",
        "ALTER TABLE orders ADD c INT DEFAULT `id`",
        "ALTER TABLE orders ADD COLUMN IF NOT EXISTS c INT",
        "ALTER TABLE orders ADD PARTITION PARTITIONS 4",
        "ALTER TABLE orders ADD SYSTEM VERSIONING",
        "ALTER TABLE orders ADD COLUMN PERIOD FOR SYSTEM_TIME (a, b)",
        "ALTER TABLE orders ADD (a INT, PRIMARY KEY (a))",
        "ALTER TABLE orders ADD (a INT FIRST)",
        "ALTER TABLE orders ADD (a INT) PARTITION BY HASH (id)",
        "ALTER TABLE orders ADD COLUMN (a INT)",
        "ALTER TABLE orders ADD c",
        "ALTER TABLE orders DROP PRIMARY KEY",
        "ALTER TABLE orders DROP c, DROP PRIMARY KEY",
        "ALTER TABLE orders DROP COLUMN IF EXISTS c",
        "ALTER TABLE orders DROP PARTITION p",
        "ALTER TABLE orders RENAME TO x",
        "ALTER TABLE orders ADD c INT, RENAME x",
        "ALTER TABLE orders MODIFY c VARCHAR(9) CHARACTER SET latin1",
        "ALTER TABLE orders MODIFY c VARCHAR(9) COLLATE utf8mb4_bin",
        "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE orders ALTER c SET DEFAULT 1",
        "ALTER IGNORE TABLE orders ADD c INT",
        "ALTER TABLE others ADD c INT",
        "TRUNCATE others",
        "TRUNCATE orders, others",
        "RENAME TABLE orders TO x",
        "ALTER TABLE orders ADD c INT COMMENT 'unfinished",
    ],
)
def test_what_may_do_more_has_no_answer(text: str) -> None:
    """The table stops before it."""
    assert alteration_of(query(text), SCHEMA) is None


@pytest.mark.parametrize("text", ["TRUNCATE orders", "truncate table `Shop`.orders /* all */ nowait"])
def test_a_truncation_empties_the_table(text: str) -> None:
    """And does nothing else."""
    assert alteration_of(query(text), SCHEMA) == Alteration(empties=True)


def computed(expression: str) -> TableSchema:
    """The table with a generated column."""
    g = replace(SCHEMA.columns[0], name="g", generation=expression)
    return replace(SCHEMA, columns=(*SCHEMA.columns, g), generated=("g",))


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE orders ADD c INT",
        "ALTER TABLE orders FORCE",
        "ALTER TABLE orders ADD INDEX (id)",
        "CREATE INDEX i ON orders (id)",
        "DROP INDEX i ON orders",
    ],
)
def test_a_statement_may_compute_a_column_anew_that_is_bound_to_a_session(text: str) -> None:
    """Whichever copies the table; an expression of its arguments alone has the values of before."""
    for schema, is_bound in ((computed("hour(`id`)"), True), (computed("`id` + 1"), False)):
        assert may_change(query(text), {schema.table: schema}) is (is_bound or "ADD c" in text)
        assert (alteration_of(query(text), schema) is None) is (is_bound or not text.startswith("ALTER"))


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("ALTER TABLE orders CONVERT TO CHARACTER SET latin1, RENAME COLUMN a TO b", [Change(RENAME, "a", "b")]),
        ("ALTER TABLE orders CHANGE a b INT AS (1), ADD c INT DEFAULT (a)", [Change(DEFINE, "a", "b"), added("c")]),
        ("ALTER TABLE orders MODIFY a INT AS (1), DROP COLUMN b", [Change(DROP, "b", "b")]),
        ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (a), ADD c INT", [added("c")]),
        ("ALTER TABLE orders ADD COLUMN c INT UNIQUE, RENAME INDEX i TO j", [added("c")]),
        ("ALTER TABLE orders ORDER BY a", []),
        ("ALTER TABLE orders RENAME COLUMN IF EXISTS a TO b, ORDER BY b", []),
        ("ALTER TABLE orders DROP COLUMN IF EXISTS a, ADD c INT", []),
        ("ALTER TABLE orders ADD c INT, RENAME TO others", []),
        ("ALTER TABLE orders ADD COLUMN (a INT, b INT DEFAULT (a)), RENAME COLUMN c TO d", []),
        ("ALTER TABLE orders RENAME COLUMN a TO b PARTITION BY HASH (id)", []),
        ("ALTER TABLE others RENAME COLUMN a TO b", []),
        ("RENAME TABLE orders TO others", []),
        ("TRUNCATE orders", []),
        ("ALTER TABLE orders ADD c INT COMMENT 'unfinished", []),
    ],
)
def test_the_names_are_read_of_a_statement_that_does_more(text: str, changes: list[Change]) -> None:
    """All of them or none."""
    assert list(name_changes_of(query(text), SCHEMA)) == changes
