"""Random DDL and DML, and runs in between: each copy equals its source, whether it followed or was read again.

`LAKEINGEST_DDL=500` tries so many sequences. A sequence is a table with a generator of its own; many share a run.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pymysql
import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, Retryable, SchemaChanged, UnsupportedEvent
from tests.beside import beside
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

SEQUENCES = int(os.environ.get("LAKEINGEST_DDL", "5"))
TABLES = 25  # that share their runs
ROUNDS = 4
DDL_SHARE, BARRIER_SHARE = 0.3, 0.03  # of the statements
DML = "INSERT", "REPLACE", "UPDATE", "DELETE"
KEYS = 40
BARRIERS = (
    "empty",
    "swap",
    "create",
    "charset",
    "key",
    "computed",
    "expression",
    "partition",
    "name of key",
    "another key",
)
AWAY = "no such table", "changed in between"  # errors of a run that began while a table was dropped and made again
WORDS = ("", "a", "Zürich", "x y", "0", "18", "NULL", "it''s")

# A type, and values that it holds
TYPES: dict[str, tuple[str, ...]] = {
    "TINYINT": ("-128", "0", "127"),
    "SMALLINT UNSIGNED": ("0", "65535"),
    "INT": ("-2147483648", "7", "2147483647"),
    "INT UNSIGNED": ("0", "4294967295"),
    "BIGINT": ("-9223372036854775808", "9", "9223372036854775807"),
    "BIGINT UNSIGNED": ("0", "18446744073709551615"),
    "DECIMAL(6,2)": ("-9999.99", "0.01", "12.50"),
    "DECIMAL(12,2)": ("-9999999999.99", "0.01"),
    "DOUBLE": ("-1.5", "1e300", "0.1"),
    "VARCHAR(12)": tuple(f"'{word}'" for word in WORDS),
    "VARCHAR(90)": tuple(f"'{word}{'w' * 40}'" for word in WORDS),
    "TEXT": tuple(f"'{word}{'t' * 100}'" for word in WORDS),
    "CHAR(5)": ("'a'", "'abcde'", "''"),
    "VARBINARY(9)": ("x'00ff'", "''"),
    "BLOB": ("x'00ff00'", "''"),
    "ENUM('a','b')": ("'a'", "'b'"),
    "ENUM('a','b','c')": ("'a'", "'c'"),
    "SET('a','b')": ("''", "'a,b'"),
    "SET('a','b','c')": ("'c'", "'a,c'"),
    "DATE": ("'1000-01-01'", "'2026-05-05'"),
    "DATETIME": ("'2026-05-05 01:02:03'",),
    "DATETIME(3)": ("'2026-05-05 01:02:03.456'",),
    "TIMESTAMP": ("'2026-05-05 01:02:03'",),
    "TIME": ("'-838:59:59'", "'01:02:03'"),
    "YEAR": ("1901", "2155"),
    "BIT(1)": ("b'0'", "b'1'"),
    "JSON": ("""'{"a": 1}'""", "'[]'"),
}


class Sequence:
    """Random statements of one table. What the server refuses changes nothing.

    `columns` are those that it has now, beside its key, with their types; `key` is the first column of that.
    """

    def __init__(self, seed: int) -> None:
        self.chance, self.name = Random(seed), f"t{seed}"
        self.columns: dict[str, str] = {}
        self.key, self._named = "id", 0

    def created(self) -> Iterator[str]:
        """The table, and some rows."""
        key = self.chance.choice(["INT", "BIGINT UNSIGNED", "VARCHAR(12)"])
        yield f"CREATE TABLE {self.name} (id {key} PRIMARY KEY, n INT, s VARCHAR(12))"
        self.columns = {"n": "INT", "s": "VARCHAR(12)"}
        for number in range(self.chance.randrange(KEYS)):
            yield f"INSERT INTO {self.name} (id, n) VALUES ({number}, {number})"

    def statements(self) -> tuple[str, ...]:
        """The next ones: mostly one, and several where it takes them to swap the table for another."""
        chance = self.chance.random()
        if chance < BARRIER_SHARE:
            return self._barrier()
        return (self._ddl() if chance < DDL_SHARE else self._dml(),)

    def _barrier(self) -> tuple[str, ...]:
        """DDL that no copy follows, or that changes the key or its name."""
        name, chance, key = self.name, self.chance, self.key
        column = chance.choice([*self.columns, "none"])
        match chance.choice(BARRIERS):
            case "empty":
                return (f"TRUNCATE {name}",)
            case "swap":
                return (
                    f"CREATE TABLE {name}_gho LIKE {name}",
                    f"INSERT INTO {name}_gho SELECT * FROM {name} LIMIT {chance.randrange(KEYS)}",
                    f"RENAME TABLE {name} TO {name}_del, {name}_gho TO {name}",
                    f"DROP TABLE {name}_del",
                )
            case "create":
                return f"DROP TABLE {name}", f"CREATE TABLE {name} (id INT PRIMARY KEY, n BIGINT)"
            case "charset":
                return (f"ALTER TABLE {name} CONVERT TO CHARACTER SET {chance.choice(['latin1', 'utf8mb4'])}",)
            case "key":
                return (f"ALTER TABLE {name} MODIFY {key} {chance.choice(['INT', 'BIGINT UNSIGNED', 'VARCHAR(12)'])}",)
            case "name of key":
                return (f"ALTER TABLE {name} RENAME COLUMN {key} TO {chance.choice(['id', 'number'])}",)
            case "another key" if self.columns.get(column) != "DOUBLE":
                columns = chance.choice([column, f"{key}, {column}"])
                return (f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY ({columns})",)
            case "computed":
                return (f"ALTER TABLE {name} ADD g{chance.randrange(9)} INT AS (LENGTH({column})) STORED",)
            case "expression":
                return (f"ALTER TABLE {name} ADD x{chance.randrange(9)} INT DEFAULT (FLOOR(RAND() * 100))",)
        return (f"ALTER TABLE {name} PARTITION BY KEY ({key}) PARTITIONS {chance.randrange(1, 4)}",)

    def _dml(self) -> str:
        chance, name = self.chance, self.name
        where = chance.choice([f"{self.key} = {chance.randrange(KEYS)}", f"1 ORDER BY {self.key} LIMIT 3"])
        match chance.choice(["insert", "insert", "replace", "update", "update", "delete", "key"]):
            case "insert" | "replace" as verb:
                columns = [one for one in self.columns if chance.random() < 0.8]
                values = [self._value(one) for one in columns]
                names, texts = ", ".join([self.key, *columns]), ", ".join([str(chance.randrange(KEYS)), *values])
                return f"{verb.upper()} INTO {name} ({names}) VALUES ({texts})"
            case "update" if self.columns:
                column = chance.choice(list(self.columns))
                return f"UPDATE {name} SET {column} = {self._value(column)} WHERE {where}"
            case "key":
                before, after = chance.randrange(KEYS), chance.randrange(KEYS)
                return f"UPDATE {name} SET {self.key} = {after} WHERE {self.key} = {before}"
        return f"DELETE FROM {name} WHERE {where}"

    def _value(self, column: str) -> str:
        return self.chance.choice([*TYPES.get(self.columns[column], ("NULL",)), "NULL", "DEFAULT"])

    def _ddl(self) -> str:
        actions = [self._action() for _ in range(self.chance.choice([1, 1, 1, 2, 3]))]
        return f"ALTER TABLE {self.name} {', '.join(actions)}"

    def _action(self) -> str:
        chance = self.chance
        column = chance.choice([*self.columns, "none"])
        kind = chance.choice(["ADD", "ADD", "DROP", "RENAME", "CHANGE", "MODIFY", "MODIFY", "INDEX"])
        match kind:
            case "ADD":
                self._named += 1
                name = chance.choice([f"c{self._named}", column])
                return f"ADD {name} {self._definition()}{self._place()}"
            case "DROP":
                return f"DROP COLUMN {column}"
            case "RENAME":
                return f"RENAME COLUMN {column} TO {self._new_name()}"
            case "CHANGE":
                return f"CHANGE {column} {self._new_name()} {self._definition(column)}{self._place()}"
            case "MODIFY":
                return f"MODIFY {column} {self._definition(column)}{self._place()}"
        return f"ADD INDEX ({column})"

    def _new_name(self) -> str:
        self._named += 1
        return self.chance.choice([f"c{self._named}", *self.columns])

    def _definition(self, column: str = "none") -> str:
        """A type, for a column that exists often a wider one, with or without a default."""
        known, chance = self.columns.get(column, ""), self.chance
        type_ = chance.choice(WIDER.get(known, ())) if known in WIDER and chance.random() < 0.7 else ""
        type_ = type_ or (known if known and chance.random() < 0.4 else chance.choice(list(TYPES)))
        null = chance.choice(["", "", " NULL", " NOT NULL"])
        has_default = chance.random() < 0.4 and type_ not in {"TEXT", "BLOB", "JSON"}
        return type_ + null + (f" DEFAULT {chance.choice(TYPES[type_])}" if has_default else "")

    def _place(self) -> str:
        return self.chance.choice(["", "", " FIRST", f" AFTER {self.chance.choice([*self.columns, self.key])}"])


WIDER = {
    "TINYINT": ("INT", "BIGINT"),
    "INT": ("BIGINT",),
    "SMALLINT UNSIGNED": ("INT", "INT UNSIGNED", "BIGINT"),
    "INT UNSIGNED": ("BIGINT", "BIGINT UNSIGNED"),
    "DECIMAL(6,2)": ("DECIMAL(12,2)",),
    "VARCHAR(12)": ("VARCHAR(90)", "TEXT"),
    "VARCHAR(90)": ("TEXT",),
    "VARBINARY(9)": ("BLOB",),
    "ENUM('a','b')": ("ENUM('a','b','c')",),
    "SET('a','b')": ("SET('a','b','c')",),
    "DATETIME": ("DATETIME(3)",),
}


class Writer:
    """A client that writes statements of several tables, mixed."""

    def __init__(self, pipe: Pipe, sequences: list[Sequence]) -> None:
        self.sequences, self.log = sequences, defaultdict[str, list[str]](list)
        settings = pipe.administrator
        self._connection = pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password.get_secret_value() if settings.password else "",
            database=pipe.database,
            autocommit=True,
        )

    def create(self) -> None:
        """All tables."""
        for one in self.sequences:
            for statement in one.created():
                self._execute(one.name, statement)

    def write(self, chance: Random, count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """So many statements, unless it is over before."""
        for _ in range(count):
            if is_over():
                break
            one = chance.choice(self.sequences)
            statements = one.statements()
            done = [self._execute(one.name, statement) for statement in statements]
            if any(done) and not statements[0].startswith(DML):
                one.columns, one.key = self._columns(one.name)

    def write_beside(self, chance: Random, count: int, _: int, is_over: Callable[[], bool]) -> None:
        """The same, on a thread of its own."""
        self.write(chance, count, is_over)

    def close(self) -> None:
        """No more statements."""
        self._connection.close()

    def _execute(self, table: str, statement: str) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.err.Error as error:
            if error.args[0] in {2006, 2013}:  # the server is gone
                raise
            return False
        self.log[table].append(statement)
        return True

    def _columns(self, table: str) -> tuple[dict[str, str], str]:
        """Those beside its key with their types, and the first one of the key."""
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, column_type, column_key = 'PRI' FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position",
                (table,),
            )
            found = cursor.fetchall()
        known = {type_.lower(): type_ for type_ in TYPES}
        columns = {str(name): known.get(str(type_).lower(), str(type_)) for name, type_, in_key in found if not in_key}
        return columns, next(str(name) for name, _, in_key in found if in_key)


@pytest.fixture(params=["FULL", "MINIMAL"])
def pipe(
    request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> Pipe:
    """A pipeline on a server whose rows name their columns, and on one whose rows do not."""
    settings = {} if request.param == "FULL" else {"binlog_row_metadata": request.param}
    return pipe_on(mysql_server_with(**settings), chunk_rows=10)


def batches() -> list[range]:
    """The seeds of the sequences, by the tables that share their runs."""
    return [range(first, min(first + TABLES, SEQUENCES)) for first in range(0, SEQUENCES, TABLES)]


@pytest.mark.parametrize("seeds", batches(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
@pytest.mark.long("the same without names of columns", only=("MINIMAL",))
def test_random_ddl_is_followed(pipe: Pipe, seeds: range) -> None:
    """Some rounds have their statements beside the run, the others before it. All tables are equal at the end."""
    chance, aside = Random(seeds.start), tuple(f"{pipe.database}.*_{name}" for name in ("gho", "del"))
    tables = pipe.config.tables.model_copy(update={"exclude": aside})
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    sequences = [Sequence(seed) for seed in seeds]
    writer = Writer(pipe, sequences)
    try:
        writer.create()
        for number in range(ROUNDS):
            count = len(sequences) * chance.choice([4, 12, 25])
            if number % 2:
                with beside(partial(writer.write_beside, chance, count), 1):
                    interfered(pipe)
            else:
                writer.write(chance, count)
                assert_equal(pipe, writer)
        assert_equal(pipe, writer)
    finally:
        writer.close()


def assert_equal(pipe: Pipe, writer: Writer) -> None:
    """After a run while nobody writes; no table stops."""
    assert pipe.run().stopped == ()
    for name, one in pipe.verify().items():
        assert one.equal, "\n".join([f"{name}: {one.differences[:3]}", *writer.log[name]])


def interfered(pipe: Pipe) -> None:
    """A run beside DDL: a table that is altered all the time stops, and one that is away at the wrong moment."""
    try:
        pipe.run()
    except LakeIngestError as error:
        is_away = any(words in str(error) for words in AWAY)
        if not is_away and not isinstance(error, SchemaChanged | Retryable | UnsupportedEvent):
            raise
