"""What old rows have after DDL is what the source has: a value that no server has told is read again."""

from collections.abc import Mapping, Sequence

import pytest

from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import Lifted, StartedOver
from tests.e2e.ddl_kinds import Outcome
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

FOLLOWED, AGAIN = Outcome.FOLLOWED, Outcome.READ_AGAIN

# What is added to a table with rows
ADDED = {
    "FLOAT NOT NULL DEFAULT 1234567.8": AGAIN,  # later DDL rounds such a default
    "FLOAT NOT NULL DEFAULT 0": FOLLOWED,
    "DOUBLE DEFAULT 0.30000000000000004": FOLLOWED,
    "SERIAL": AGAIN,
    "BIGINT UNSIGNED NOT NULL UNIQUE AUTO_INCREMENT": AGAIN,
    "VARCHAR(20) DEFAULT '😀?'": FOLLOWED,
    "VARCHAR(20) DEFAULT 'a\\\\b\\nc\\0d'": FOLLOWED,
    "VARCHAR(5) DEFAULT b'101'": FOLLOWED,
    "CHAR(4) NOT NULL DEFAULT 'x '": FOLLOWED,
    "ENUM('😀','b') DEFAULT '😀'": FOLLOWED,
    "ENUM('😀','b') NOT NULL": AGAIN,
    "ENUM('x','y') NOT NULL": FOLLOWED,
    "SET('😀','b') NOT NULL DEFAULT '😀,b'": FOLLOWED,
    "SET('a') NOT NULL": FOLLOWED,
    "BIT(10) DEFAULT b'1000000001'": FOLLOWED,
    "BINARY(3) NOT NULL DEFAULT 'a'": FOLLOWED,
    "TIME(2) DEFAULT '01:02:03.45'": FOLLOWED,
    "YEAR NOT NULL": FOLLOWED,
    "DECIMAL(65,30) DEFAULT 1.5": FOLLOWED,
    "BIGINT UNSIGNED DEFAULT 18446744073709551615": FOLLOWED,
    "TIMESTAMP NULL DEFAULT '2026-01-01 00:00:00'": AGAIN,
    "INT DEFAULT (1 + 1)": AGAIN,
}

# Statements after which a column is not certainly what it was, or the server has computed one anew
ALTERED = {
    "MODIFY s VARCHAR(10), ADD z INT": AGAIN,  # the charset is the table's
    "MODIFY a DATETIME(3)": AGAIN,
    "MODIFY a DATETIME(3), MODIFY s VARCHAR(40) CHARACTER SET latin1, ADD z INT": AGAIN,
    "MODIFY e ENUM('😁','b'), ADD z INT": AGAIN,
    "DROP g, DROP v, MODIFY a DATETIME(3), MODIFY b BIGINT": FOLLOWED,
    "DROP g, DROP v, DROP a, ADD a INT NOT NULL": FOLLOWED,
    "MODIFY b BIGINT, ADD z VARCHAR(9) DEFAULT 'z'": FOLLOWED,
}
COLUMNS = (
    "id INT PRIMARY KEY, s VARCHAR(10) CHARACTER SET utf8mb4, a DATETIME, b INT,"
    " e ENUM('😀','b') CHARACTER SET utf8mb4,"
    " v VARCHAR(40) CHARACTER SET utf8mb4 AS (CAST(a AS CHAR)) VIRTUAL, g VARCHAR(50) AS (CONCAT(v, 'x')) STORED"
)


def outcomes(pipe: Pipe, names: Mapping[str, str]) -> dict[str, Outcome | None]:
    """What the runs since the first did, by the statement of each table."""
    again = {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)}
    lifted = {one.table.name for one in pipe.seen(Lifted) if isinstance(one, Lifted)}
    return {text: AGAIN if name in again else FOLLOWED if name in lifted else None for name, text in names.items()}


def altered(pipe: Pipe, create: str, fill: str, statements: Sequence[str]) -> dict[str, Outcome | None]:
    """Alter a table by each of the statements, beside other changes; what the next run did at each."""
    names = {f"t{number}": text for number, text in enumerate(statements)}
    pipe.sql("SET SESSION sql_mode = ''")
    for name in names:
        pipe.sql(f"CREATE TABLE {name} {create}", f"INSERT INTO {name} {fill}")
    pipe.run()
    pipe.events.clear()
    for name, text in names.items():
        pipe.sql(
            f"UPDATE {name} SET b = 7 WHERE id = 2", f"ALTER TABLE {name} {text}", f"DELETE FROM {name} WHERE id = 3"
        )
    pipe.begin_file()
    assert pipe.run().stopped == ()
    return outcomes(pipe, names)


@pytest.mark.long("all forms of a default, of which random DDL draws some")
def test_old_rows_have_the_value_that_the_server_gave_them(any_pipe: Pipe) -> None:
    """In each type of a column that is added, whatever information_schema shows of its default."""
    pipe = any_pipe
    found = altered(
        pipe,
        "(id INT PRIMARY KEY, b INT) DEFAULT CHARSET utf8mb4",
        "VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
        [f"ADD c {definition}" for definition in ADDED],
    )
    pipe.assert_equal()
    assert pipe.rows("t0") == [(1, 1, 1234567.75), (2, 7, 1234567.75), (4, 4, 1234567.75)]
    assert pipe.rows("t3") == [(1, 1, 1), (2, 7, 2), (4, 4, 4)]
    assert {row[2] for row in pipe.rows("t5")} == {"😀?"}
    assert found == {f"ADD c {definition}": outcome for definition, outcome in ADDED.items()}


@pytest.mark.long("all forms of a change, of which random DDL draws some")
def test_rows_that_ddl_may_have_changed_are_read_again(any_pipe: Pipe) -> None:
    """By a charset, beside any other clause and in any mode; by what a generated column is computed from, in steps."""
    found = altered(
        any_pipe,
        f"({COLUMNS}) DEFAULT CHARSET latin1",
        "(id, s, a, b, e) VALUES (1, '中', '2026-01-01', 1, '😀'), (2, 'é', NULL, 2, 'b'), (3, '', NULL, 3, NULL)",
        list(ALTERED),
    )
    any_pipe.assert_equal()
    assert found == ALTERED


@pytest.mark.long("whole runs")
@pytest.mark.parametrize("statement", ["MODIFY b BIGINT", "FORCE, ALGORITHM=COPY"])
def test_a_column_that_is_computed_anew_in_another_session_is_read_again(pipe: Pipe, statement: str) -> None:
    """Every statement that copies the table computes its stored columns, and no row event says so."""
    pipe.sql(
        "SET SESSION time_zone = '+00:00'",
        "CREATE TABLE t (id INT PRIMARY KEY, b INT, at TIMESTAMP NULL, g INT AS (HOUR(at)) STORED)",
        "INSERT INTO t (id, b, at) VALUES (1, 1, '2026-01-01 10:00:00')",
    )
    pipe.run()
    pipe.sql("SET SESSION time_zone = '+05:00'", f"ALTER TABLE t {statement}")
    pipe.begin_file()
    assert pipe.run().stopped == ()
    assert [row[3] for row in pipe.rows("t")] == [15]
    pipe.assert_equal()


@pytest.mark.long("the same on another server", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_a_text_of_a_number_that_is_computed_late_is_read_again(any_pipe: Pipe) -> None:
    """The zeros of ZEROFILL stay in a stored column until DDL copies the table, which changes no definition."""
    pipe = any_pipe
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT(5) ZEROFILL, g VARCHAR(20) AS (CONCAT(n, 'x')) STORED)",
        "INSERT INTO t (id, n) VALUES (1, 7)",
    )
    pipe.run()
    pipe.sql("ALTER TABLE t MODIFY n INT UNSIGNED")
    pipe.begin_file()
    pipe.run()
    pipe.sql("ALTER TABLE t ALGORITHM = COPY")
    pipe.begin_file()
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == [(1, 7, query(pipe.connection, "SELECT g FROM t")[0][0])]
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_member_that_the_server_cannot_show_stays_what_it_is(pipe: Pipe) -> None:
    """The gates know no member that has another text; other columns of the table are followed."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('😀','b') NOT NULL) DEFAULT CHARSET utf8mb4",
        "INSERT INTO t VALUES (1, '😀'), (2, 'b')",
    )
    pipe.run()
    pipe.sql("ALTER TABLE t ADD z INT DEFAULT 5", "INSERT INTO t VALUES (3, '😀', 6)")
    assert pipe.run().stopped == ()
    assert pipe.seen(StartedOver) == []
    assert pipe.rows("t") == [(1, "😀", 5), (2, "b", 5), (3, "😀", 6)]


@pytest.mark.long("whole runs")
def test_a_default_of_an_emptied_table_is_not_guessed(pipe: Pipe) -> None:
    """No row of the source tells it; the copy had rows at the DDL."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    pipe.sql("ALTER TABLE t ADD z INT DEFAULT 5", "DELETE FROM t")
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == []
    pipe.sql("INSERT INTO t (id) VALUES (2)")
    assert pipe.run().stopped == ()
    assert pipe.rows("t") == [(2, 5)]
