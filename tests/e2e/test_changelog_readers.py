"""Readers that read the changelog bit by bit, at random moments: each has the rows of the copy when it has read on.

`LAKEINGEST_READERS=100` tries so many histories. A history is one of a table with changes, DDL, TRUNCATE, re-snapshots,
repairs and failovers. A reader stores the position of its last line, and knows nothing but the lines; where the
changelog is gone, it begins anew. That it finds faults is shown with faults that are put in.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakeingest import Pipeline
from lakeingest.commands.repair import repair
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ChangelogGone
from lakeingest.mysql.connection import query
from lakeingest.pipeline.changelog.reading import Changelog
from lakeingest.spool.changes import Changes
from lakeingest.spool.followed import Altered
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import keeping, lines
from tests.lake.shown import shown
from tests.servers.replication import addressed, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

HISTORIES = int(os.environ.get("LAKEINGEST_READERS", "4"))
HISTORIES_OF_FAULTS, STEPS = 20, 14
FORMS = ("changelog-json", "debezium-json")
KEYS = 30
WEEK = 7 * 86_400

# Types, each with a value, and a default that fills it
COLUMNS = (
    ("INT", "7", "DEFAULT 4"),
    ("BIGINT UNSIGNED NOT NULL", "18446744073709551615", ""),
    ("VARCHAR(12)", "'Zürich'", "DEFAULT 'x y'"),
    ("DECIMAL(6,2)", "-12.50", "DEFAULT 0.25"),
    ("ENUM('a','b')", "'b'", ""),
)


class Reader:
    """A reader of one format: its rows, and the position of the last line that it has applied."""

    def __init__(self, pipe: Pipe, form: str) -> None:
        self._pipe, self._form = pipe, form
        self._rows: replay.Rows = {}
        self._key: tuple[str, ...] = ("id",)
        self._since: str | None = None

    def read(self, most: Callable[[int], int] | None = None) -> None:
        """Read on, to the end or so many lines of all; begin anew where the changelog is gone."""
        try:
            printed = lines(self._pipe, since=self._since, form=self._form)
        except ChangelogGone:
            assert self._since is not None
            self._since = None
            self._rows.clear()
            printed = lines(self._pipe, form=self._form)
        if self._since is None:
            self._key = _key_of(printed, self._form)
        wanted = printed if most is None else printed[: most(len(printed) + 1)]
        play = replay.flink if self._form == FORMS[0] else replay.debezium
        play(wanted, self._key, self._rows, strict=False)
        for line in wanted:
            self._since, key = _read_to(line, self._form)
            self._key = key or self._key

    def ahead(self) -> list[dict[str, Any]]:
        """The rows that it would have if it read to the end now; it stays where it is."""
        other = copy(self)
        other._rows = dict(self._rows)  # noqa: SLF001 - of the same class
        other.read()
        return _sorted(other._rows.values())  # noqa: SLF001


def _key_of(printed: list[str], form: str) -> tuple[str, ...]:
    """The key of the first row, before any DDL."""
    for line in printed:
        doc = json.loads(line)
        row = doc["data"] if form == FORMS[0] else doc["payload"].get("after")
        if row is not None:
            return ("id",) if "id" in row else ("no",)
    return ("id",)


def _read_to(line: str, form: str) -> tuple[str, tuple[str, ...]]:
    """The position of a line, and the key if it is DDL."""
    doc = json.loads(line)
    if form == FORMS[0]:
        return str(doc["position"]), tuple(doc.get("key", ()))
    changes = doc["payload"].get("tableChanges")
    return str(doc["payload"]["source"]["sequence"]), tuple(
        changes[0]["table"]["primaryKeyColumnNames"] if changes else ()
    )


class History:
    """Random statements of a table `t`; `key` and `columns` are those that it has now."""

    def __init__(self, pipe: Pipe, chance: Random) -> None:
        self.pipe, self.chance = pipe, chance
        self.key, self.columns, self._named = "id", {"v": COLUMNS[0], "w": COLUMNS[0]}, 0
        pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 1, 11), (2, 2, 22)")

    def change(self) -> None:
        """A few changes of rows."""
        for _ in range(self.chance.randrange(1, 5)):
            self.pipe.sql(self._dml())

    def alter(self, *, barriers: bool) -> None:
        """DDL that a copy follows, or now and then DDL after which it is read again."""
        if barriers and self.chance.random() < 0.15:
            self.pipe.sql("ALTER TABLE t COMMENT 'x', CONVERT TO CHARACTER SET latin1")
            return
        self.pipe.sql(self._ddl())

    def unlogged(self) -> None:
        """Changes that the source does not log."""
        self.pipe.unlogged(self._dml(), self._dml())

    def _dml(self) -> str:
        chance, key = self.chance, self.chance.randrange(KEYS)
        names = [self.key, *self.columns]
        values = [str(key), *(chance.choice([value]) for _, value, _ in self.columns.values())]
        match chance.choice(["REPLACE", "REPLACE", "UPDATE", "DELETE", "MOVE"]):
            case "REPLACE":
                return f"REPLACE INTO t ({', '.join(names)}) VALUES ({', '.join(values)})"
            case "UPDATE" if self.columns:
                name = chance.choice(list(self.columns))
                return f"UPDATE t SET {name} = {self.columns[name][1]} WHERE {self.key} < {key}"
            case "MOVE":
                return f"UPDATE IGNORE t SET {self.key} = {self.key} + 7 WHERE {self.key} = {key}"
        return f"DELETE FROM t WHERE {self.key} = {key}"

    def _ddl(self) -> str:
        chance, columns = self.chance, self.columns
        kind = chance.choice(["add", "add", "drop", "rename", "swap", "again", "key", "truncate", "index"])
        if kind == "truncate":
            return "TRUNCATE t"
        if kind == "key":
            old, self.key = self.key, "no" if self.key == "id" else "id"
            return f"ALTER TABLE t RENAME COLUMN {old} TO {self.key}"
        if kind == "index":
            return "ALTER TABLE t COMMENT 'a table'"
        if kind == "swap" and len(columns) > 1:
            one, two = chance.sample(list(columns), 2)
            columns[one], columns[two] = columns[two], columns[one]
            return f"ALTER TABLE t RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}"
        if kind == "rename" and columns:
            old, new = chance.choice(list(columns)), self._name()
            columns[new] = columns.pop(old)
            return f"ALTER TABLE t RENAME COLUMN {old} TO {new}"
        if kind == "drop" and len(columns) > 1:
            name = chance.choice(list(columns))
            del columns[name]
            return f"ALTER TABLE t DROP {name}"
        if kind == "again" and columns:
            name = chance.choice(list(columns))
            columns[name] = COLUMNS[2]
            return f"ALTER TABLE t DROP {name}, ADD {name} {COLUMNS[2][0]} {COLUMNS[2][2]}"
        name = self._name()
        columns[name] = chance.choice(COLUMNS)
        return f"ALTER TABLE t ADD {name} {columns[name][0]} {columns[name][2]} {chance.choice(['', 'FIRST'])}"

    def _name(self) -> str:
        self._named += 1
        return f"c{self._named}"


def copy_of(pipe: Pipe) -> list[dict[str, Any]]:
    """The rows of the copy with the columns of the source, by their names, sorted."""
    names = [row[0] for row in query(pipe.connection, "SHOW COLUMNS FROM t")]
    rows = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    if DELETED in rows.columns:
        rows = rows.filter(f"NOT {DELETED}")
    return _sorted(row.asDict() for row in rows.select(*names).collect())


def _sorted(rows: Any) -> list[dict[str, Any]]:
    """By the text of the key: a reader may have rows without one."""
    return sorted(rows, key=lambda row: str(row.get("id", row.get("no"))))


@dataclass
class Life:
    """One history of a table, and readers of it. Each that has read to the end has the rows of the copy.

    `barriers`: also with DDL that no copy follows. `fail_over`, where there is a server that can take over.
    """

    pipe: Pipe
    chance: Random
    barriers: bool = True
    fail_over: Callable[[], None] | None = None
    steps: int = 0  # that were begun

    def go(self, steps: int = STEPS) -> None:
        """A run after each step; readers read on, and one begins."""
        pipe, chance = self.pipe, self.chance
        keeping(pipe, WEEK)
        history = History(pipe, chance)
        pipe.run()
        readers = [Reader(pipe, form) for form in FORMS]
        for _ in range(steps):
            self.steps += 1
            self._step(history)
            pipe.run()
            for reader in readers:
                if chance.random() < 0.6:
                    reader.read(chance.randrange)
            rows = copy_of(pipe)
            for reader in (*readers, Reader(pipe, chance.choice(FORMS))):
                assert reader.ahead() == rows

    def _step(self, history: History) -> None:
        chance = self.chance
        match chance.choice(["change", "alter", "alter", "both", "again", "keep", "fail over"]):
            case "change":
                history.change()
            case "alter":
                history.alter(barriers=self.barriers)
            case "both":
                history.change()
                history.alter(barriers=self.barriers)
                history.change()
            case "again" if self.fail_over is None:  # a replica lacks what is not logged
                history.change()
                self.pipe.run()
                history.unlogged()
                self._read_again()
            case "keep":
                keeping(self.pipe, chance.choice([0, WEEK, WEEK]))
            case "fail over" if self.fail_over is not None:
                self.fail_over()

    def _read_again(self) -> None:
        """Some keys or all rows, by a re-snapshot or a repair."""
        name, chance = f"{self.pipe.database}.t", self.chance
        pipeline = Pipeline(self.pipe.config, self.pipe.spark)
        match chance.choice(["keys", "whole", "repair"]):
            case "keys":
                pipeline.resnapshot(name, keys=chance.sample(range(KEYS), 9))
            case "whole":
                pipeline.resnapshot(name)
            case _:
                repair(self.pipe.config, [name], self.pipe.spark)


@pytest.mark.any_format
@pytest.mark.long("several runs in a row; other tests have each step")
def test_readers_have_the_rows_of_the_copy_after_each_run(pipe: Pipe) -> None:
    """A short history with DDL that the copy follows."""
    Life(pipe, Random(1), barriers=False).go(5)


@pytest.mark.any_format
@pytest.mark.long("many histories")
@pytest.mark.parametrize("seed", range(100, 100 + HISTORIES))
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_readers_have_the_rows_of_the_copy_through_long_histories(
    pipe_on: Callable[..., Pipe], any_server: LocalServer, seed: int, deletes: str
) -> None:
    """With DDL after which all rows are read again, on each server."""
    Life(pipe_on(any_server, chunk_rows=10, deletes=deletes), Random(seed)).go()


@pytest.mark.long("many histories")
@pytest.mark.parametrize("seed", range(100, 100 + HISTORIES))
def test_readers_have_the_rows_of_the_copy_after_failovers(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], seed: int
) -> None:
    """They begin anew after each."""
    with replicating(mysql_server_with, ("73", "74")) as pair, addressed(pair.source) as address:
        pipe, now = pipe_on(mysql_server_with(server_id="73"), chunk_rows=10), [pair]
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})
        own = pipe.connection

        def fail_over() -> None:
            now.append(now[-1].swap(address))
            pipe.connection = now[-1].primary
            query(pipe.connection, f"USE {pipe.database}")

        Life(pipe, Random(seed), fail_over=fail_over).go()
        now[-1].part()
        pipe.connection = own


def _newest(log: Changelog, _: str) -> TableSchema:
    """All rows by the definition of now."""
    return log._stored_definition().schema  # noqa: SLF001 - a fault


def _without_ddl(rows: Iterator[pa.RecordBatch | Altered]) -> Iterator[pa.RecordBatch | Altered]:
    return (one for one in rows if not isinstance(one, Altered))


def _without_truncate(rows: Iterator[pa.RecordBatch | Altered]) -> Iterator[pa.RecordBatch | Altered]:
    return (one for one in rows if not (isinstance(one, Altered) and one.alteration.empties))


REAL_ROWS = Changes.rows

FAULTS: dict[str, tuple[str, Any]] = {
    "all rows have the columns of now": ("lakeingest.pipeline.changelog.reading.Changelog._schema_with", _newest),
    "DDL is no line": (
        "lakeingest.spool.changes.Changes.rows",
        lambda *given, **options: _without_ddl(REAL_ROWS(*given, **options)),
    ),
    "TRUNCATE is no line": (
        "lakeingest.spool.changes.Changes.rows",
        lambda *given, **options: _without_truncate(REAL_ROWS(*given, **options)),
    ),
    "rows that were read again are no lines": (
        "lakeingest.spool.changes.Changes._reread",
        lambda *_: iter(()),
    ),
    "new columns are NULL": ("lakeingest.spool.followed._unpacked", lambda _: {}),
    "a gap is no gap": ("lakeingest.spool.held.Stretch.lacks", lambda *_: False),
}


@pytest.mark.any_format
@pytest.mark.long("histories until each fault is found")
@pytest.mark.parametrize("fault", FAULTS)
def test_readers_find_faults_that_are_put_in(
    pipe_on: Callable[..., Pipe],
    mysql_server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    record_property: Callable[..., None],
) -> None:
    """Each within a few histories; without the fault the same history is read as it should be."""
    monkeypatch.setattr(*FAULTS[fault])
    began = time.monotonic()
    for seed in range(HISTORIES_OF_FAULTS):
        life = Life(pipe_on(mysql_server, chunk_rows=10), Random(seed))
        try:
            life.go()
        except Exception as error:  # noqa: BLE001 - a reader may end with any
            seconds, kind = time.monotonic() - began, type(error).__name__
            found = f"{fault}: found by history {seed}, step {life.steps}, in {seconds:.0f} s ({kind})"
            record_property("faults of the changelog that were put in", found)
            monkeypatch.undo()
            Life(pipe_on(mysql_server, chunk_rows=10), Random(seed)).go(life.steps)
            return
    pytest.fail(f"no history shows that {fault}")
