"""A program that knows nothing of lakeingest, and records every state of a table of a source that it alone changes.

It knows the position and the time after each of its transactions, from the server. It compares what it has recorded
with a history of the table (`history: scd2`), read as the page about histories says.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pymysql

Row = tuple[tuple[str, Any], ...]  # the columns of a row, by their names, without NULLs
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Recorded:
    """The state after a transaction: rows, columns, the place after it, and seconds of the server's clock around it."""

    rows: list[Row]
    columns: tuple[str, ...]
    place: str
    before: float
    after: float


@dataclass
class Recorder:
    """Changes the table `t` of a database at random, and records what it was.

    `epoch`: the first part of the places. `names`: the name that each column has now, by each name that it ever had.
    """

    connection: pymysql.Connection
    chance: random.Random
    states: list[Recorded] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    epoch: int = 1

    def transaction(self, *statements: str) -> None:
        """Run these statements in one transaction, and record the table."""
        before = self._now()
        self._run("BEGIN", *statements, "COMMIT")
        self.record(before)

    def ddl(self, statement: str, renamed: Mapping[str, str] | None = None) -> None:
        """Run DDL, and record the table. `renamed`: new names of columns by their old ones."""
        before = self._now()
        self._run(statement)
        renames = renamed or {}
        self.names = {old: renames.get(now, now) for old, now in self.names.items()} | dict(renames)
        self.record(before)

    def record(self, before: float | None = None) -> None:
        """Record the table as it is now."""
        rows = self._rows()
        file, pos = self._written()
        place = f"{self.epoch:06d}.{int(file.rpartition('.')[2]):010d}.{pos:020d}"
        self.states.append(
            Recorded(rows, self._columns(), place, self._now() if before is None else before, self._now())
        )

    def change(self) -> None:
        """A transaction of some changes at random: of values, of keys, of rows that come and go."""
        values = [name for name in self._columns() if name not in {"id", "city"}]
        statements = []
        for _ in range(self.chance.randint(1, 4)):
            key, city = self.chance.randint(0, 25), self.chance.choice("ab")
            match self.chance.randint(0, 4):
                case 0 | 1:
                    row = f"{key}, '{city}', {self.chance.randint(0, 9)}"
                    statements.append(f"INSERT IGNORE INTO t (id, city, `{values[0]}`) VALUES ({row})")
                case 2:
                    name = self.chance.choice(values)
                    statements.append(f"UPDATE t SET `{name}` = {self.chance.randint(0, 9)} WHERE id % 7 = {key % 7}")
                case 3:
                    statements.append(f"DELETE FROM t WHERE id = {key}")
                case _:
                    statements.append(f"UPDATE IGNORE t SET id = id + 30 WHERE id = {key} AND city = '{city}'")
        self.transaction(*statements)

    def assert_same_as(self, versions: Sequence[Mapping[str, Any]], since: int, *, whole_seconds: bool = False) -> int:
        """All states from `since` on are those of the history, by position and by time. Returns how many by time.

        `whole_seconds`: the server logs no smaller parts of the time of a commit.
        """
        compared = 0
        for number, state in enumerate(self.states[since:], since):
            wanted = sorted(self._today(row) for row in state.rows)
            columns = {self.names.get(name, name) for name in state.columns}
            assert self.as_of_position(versions, state.place, columns) == wanted, (number, state.place)
            later = self.states[number + 1] if number + 1 < len(self.states) else None
            at = state.after
            if whole_seconds:
                at = float(int(state.after)) + 0.999999
            if later is None or at < later.before:
                assert self.as_of_time(versions, at, columns) == wanted, (number, at)
                compared += 1
        return compared

    def as_of_position(self, versions: Sequence[Mapping[str, Any]], place: str, columns: Collection[str]) -> list[Row]:
        """The rows as of a place, with these columns."""
        limit = place + "~"
        return sorted(
            _row(row, columns)
            for row in versions
            if row["valid_from_position"] < limit
            and (row["valid_to_position"] is None or row["valid_to_position"] > limit)
        )

    def as_of_time(self, versions: Sequence[Mapping[str, Any]], at: float, columns: Collection[str]) -> list[Row]:
        """The rows as of a second since 1970, with these columns."""
        moment = EPOCH + timedelta(seconds=at)
        return sorted(
            _row(row, columns)
            for row in versions
            if row["valid_from"] <= moment and (row["valid_to"] is None or row["valid_to"] > moment)
        )

    def _today(self, row: Row) -> Row:
        """A recorded row under the names that its columns have now."""
        return tuple(sorted((self.names.get(name, name), value) for name, value in row))

    def _rows(self) -> list[Row]:
        with self.connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SELECT * FROM t")
            return [_row(row, row.keys()) for row in cursor.fetchall()]

    def _columns(self) -> tuple[str, ...]:
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW COLUMNS FROM t")
            return tuple(str(name) for name, *_ in cursor.fetchall())

    def _written(self) -> tuple[str, int]:
        """The end of the binlog: the file's name and a byte."""
        with self.connection.cursor() as cursor:
            try:
                cursor.execute("SHOW BINARY LOG STATUS")
            except pymysql.err.ProgrammingError:  # MariaDB, and MySQL before 8.2
                cursor.execute("SHOW MASTER STATUS")
            file, pos, *_ = cursor.fetchone() or ("", 0)
            return str(file), int(pos)

    def _now(self) -> float:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT UNIX_TIMESTAMP(SYSDATE(6))")
            [now] = cursor.fetchone() or [0]
            return float(now)

    def _run(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def rows_of(found: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows of any program, as `Recorded.rows` has them, in order."""
    return sorted(_row(row, row.keys()) for row in found)


def _row(values: Mapping[str, Any], columns: Collection[str]) -> Row:
    return tuple(sorted((name, values[name]) for name in columns if values[name] is not None))
