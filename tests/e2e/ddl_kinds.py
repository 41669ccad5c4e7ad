"""Kinds of DDL, and what a copy does at each: `tests/e2e/test_ddl_kinds.py` proves it, and the documents show it."""

import enum
from dataclasses import dataclass

COLUMNS = (
    "id INT PRIMARY KEY, v INT NOT NULL, u INT NOT NULL, w CHAR(5), s VARCHAR(20), d DECIMAL(6,2), e ENUM('x','y'),"
    " at DATETIME, INDEX by_u (u)"
)
ROW = "{id}, {id}, 7, 'w', 'some', 1.25, 'x', '2026-01-02 03:04:05'"


class Outcome(enum.StrEnum):
    """What a copy does."""

    NOTHING = "nothing changes"
    FOLLOWED = "followed"
    READ_AGAIN = "read again"
    STOPS = "the table stops"


@dataclass(frozen=True, slots=True)
class Kind:
    """Statements on a table `{t}`, and what a copy does, in either format."""

    statements: tuple[str, ...]
    outcome: Outcome
    note: str = ""

    @property
    def shown(self) -> str:
        """The statements, on a table `t`."""
        return "; ".join(statement.format(t="t") for statement in self.statements)


def _alter(actions: str, outcome: Outcome, note: str = "") -> Kind:
    return Kind((f"ALTER TABLE {{t}} {actions}",), outcome, note)


_NOTHING, _FOLLOWED, _AGAIN, _STOPS = Outcome
KINDS: dict[str, tuple[Kind, ...]] = {
    "Columns that are added": (
        _alter("ADD c INT", _FOLLOWED, "older rows have NULL"),
        _alter("ADD c INT FIRST, ADD x DATE AFTER v", _FOLLOWED, "the same"),
        _alter("ADD c INT, ALGORITHM=INSTANT", _FOLLOWED, "the same"),
        _alter("ADD c INT DEFAULT 5", _FOLLOWED, "older rows have the default; their files are written anew, once"),
        _alter("ADD c INT NOT NULL", _FOLLOWED, "older rows have the implicit default of the type, here 0"),
        _alter("ADD c INT DEFAULT (v + 1)", _AGAIN),
        _alter("ADD c TIMESTAMP NOT NULL DEFAULT '2026-01-01 00:00:00'", _AGAIN),
        _alter("ADD c CHAR(5) DEFAULT 'x'", _FOLLOWED, "a literal of any type but FLOAT and TIMESTAMP"),
        _alter("ADD c FLOAT DEFAULT 1.5", _AGAIN, "other DDL may round such a default later; 0 is followed"),
        _alter("ADD c SERIAL", _AGAIN, "the server numbers the rows"),
        _alter("ADD c BIT(1) NOT NULL", _AGAIN, "only of numbers and texts the implicit default is known"),
        _alter("ADD c INT AS (v + 1) STORED", _AGAIN),
        _alter("ADD c INT INVISIBLE", _AGAIN),
    ),
    "Columns that are dropped, renamed or moved": (
        _alter("DROP d", _FOLLOWED, "the copy keeps the column, NULL in all rows; older snapshots have its values"),
        _alter("RENAME COLUMN v TO x", _FOLLOWED, "the column keeps its field id in Iceberg"),
        _alter("CHANGE v x INT NOT NULL", _FOLLOWED, "the same"),
        _alter("RENAME COLUMN v TO u, RENAME COLUMN u TO v", _FOLLOWED, "the same"),
        _alter("RENAME COLUMN id TO number", _FOLLOWED, "of a key"),
        _alter("MODIFY v INT NOT NULL FIRST", _FOLLOWED),
    ),
    "Types": (
        _alter("MODIFY v BIGINT NOT NULL", _FOLLOWED, "any longer integer, for ever wider values"),
        _alter("MODIFY s VARCHAR(40)", _FOLLOWED, "a longer VARCHAR, TEXT, VARBINARY or BLOB"),
        _alter("MODIFY d DECIMAL(9,2)", _FOLLOWED, "more digits before the point"),
        _alter("MODIFY at DATETIME(3)", _FOLLOWED, "more digits of a second"),
        _alter("MODIFY e ENUM('x','y','z')", _FOLLOWED, "members at the end of an ENUM or SET"),
        _alter("MODIFY v INT NULL", _FOLLOWED),
        _alter("MODIFY v TINYINT NOT NULL", _AGAIN),
        _alter("MODIFY v VARCHAR(20) NOT NULL", _AGAIN),
        _alter("MODIFY w CHAR(5) NOT NULL", _AGAIN),
        _alter("MODIFY e ENUM('y','x')", _AGAIN),
        _alter("MODIFY s VARCHAR(20) CHARACTER SET latin1", _AGAIN),
        _alter("CONVERT TO CHARACTER SET latin1", _AGAIN),
        _alter("ALTER COLUMN v SET DEFAULT 3", _AGAIN),
    ),
    "Keys": (
        _alter("DROP PRIMARY KEY, ADD PRIMARY KEY (v)", _AGAIN),
        _alter("MODIFY id BIGINT", _AGAIN, "the type of a key"),
        _alter("DROP PRIMARY KEY", _STOPS, "PreflightFailed or UnsupportedTable: a table needs a key"),
    ),
    "Indexes, comments, options": (
        _alter("ADD INDEX (v), DROP INDEX by_u", _NOTHING),
        _alter("ADD UNIQUE (v)", _NOTHING),
        _alter("COMMENT = 'what it is', AUTO_INCREMENT = 1000", _NOTHING, "comments come with the next publish"),
        _alter("ADD CHECK (v > -5)", _NOTHING),
        _alter("FORCE", _NOTHING),
        Kind(("CREATE INDEX by_v ON {t} (v)",), _NOTHING),
        Kind(("OPTIMIZE TABLE {t}",), _NOTHING),
        Kind(("ANALYZE TABLE {t}",), _NOTHING),
        _alter("ORDER BY v", _AGAIN, "it is not understood, like all that is not listed"),
    ),
    "Whole tables": (
        Kind(("TRUNCATE {t}",), _FOLLOWED, "readers keep the rows until the next publish; soft deletes: read again"),
        Kind(("DROP TABLE {t}", "CREATE TABLE {t} (id INT PRIMARY KEY, z INT)"), _AGAIN),
        Kind(
            (
                "CREATE TABLE {t}_gho LIKE {t}",
                "ALTER TABLE {t}_gho ADD z INT DEFAULT 3",
                "INSERT INTO {t}_gho (id, v, u, w, s, d, e, at) SELECT * FROM {t}",
                "RENAME TABLE {t} TO {t}_del, {t}_gho TO {t}",
            ),
            _AGAIN,
            "gh-ost, pt-online-schema-change, and any other swap",
        ),
        _alter("PARTITION BY HASH (id) PARTITIONS 2", _AGAIN),
        Kind(("DROP TABLE {t}",), _STOPS, "readers keep the rows; a run without `--follow` only leaves the table out"),
        Kind(("RENAME TABLE {t} TO {t}_away",), _STOPS, "the same; with its new name it is copied as a new table"),
    ),
}
