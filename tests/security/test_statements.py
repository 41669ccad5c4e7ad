"""Statements in the binlog are those of anybody who may write to any database of the server: none holds up a run."""

from contextlib import suppress

import pytest

from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire.alter import alteration_of
from lakeingest.mysql.wire.ddl import may_change
from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.statements import classify
from lakeingest.mysql.wire.tokens import Unclear

TABLE = TableId("shop", "t")
SCHEMA = TableSchema(TABLE, (Column("id", Kind.INT32, source_type("int"), nullable=False),), ("id",), index="PRIMARY")
REPEATED = {
    "comments that do not end": ("CREATE VIEW v AS SELECT '", "/*a", "'"),
    "comments of MariaDB": ("CREATE VIEW v AS SELECT '", "/*M!", "'"),
    "executed comments": ("CREATE VIEW v AS SELECT '", "/*!5", "'"),
    "comments that end": ("ALTER TABLE t ", "/**/", "ADD b INT"),
    "settings": ("", "SET STATEMENT a = 1 FOR ", "ALTER TABLE t ADD b INT"),
    "options": ("CREATE ", "OR REPLACE ", "VIEW v AS SELECT 1"),
    "accounts": ("CREATE ", "DEFINER = `a`@`b` ", "VIEW v AS SELECT 1"),
    "blanks": ("XA  COMMIT", " ", "t"),
    "parentheses": ("CREATE TABLE t (a INT DEFAULT (", "(", ""),
    "quotes": ("ALTER TABLE t COMMENT '", "''", ""),
    "names": ("ALTER TABLE `", "``", "` ADD b INT"),
    "tables": ("DROP TABLE t", ", a.b", ""),
}


@pytest.mark.long("takes seconds")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_mariadb", [False, True], ids=["MySQL", "MariaDB"])
@pytest.mark.parametrize("name", REPEATED)
def test_the_time_for_a_statement_grows_with_its_length(name: str, *, is_mariadb: bool) -> None:
    """With its square, each of these would take hours: a client may send 64 MB at once."""
    first, repeated, last = REPEATED[name]
    text = first + repeated * (300_000 // len(repeated)) + last
    query = Query("shop", text, 0, 45, is_mariadb=is_mariadb)
    classify(query)
    may_change(query, {TABLE: SCHEMA})
    with suppress(Unclear):
        alteration_of(query, SCHEMA)
