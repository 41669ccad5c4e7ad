"""Tables with every kind of key, copied while four writers move keys across the borders of chunks: they come out equal.

LAKEINGEST_KEY_ROWS sets the rows of each table, a fifth of it on MariaDB; LAKEINGEST_KEY_ROUNDS how often it is done.
"""

import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import pymysql
import pytest
from pymysql.constants import ER

from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedValue
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.faults.beside import beside
from tests.mysql.keyed import KEYS, Keyed, keys_of

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROWS = int(os.environ.get("LAKEINGEST_KEY_ROWS", "20000"))
ROUNDS = int(os.environ.get("LAKEINGEST_KEY_ROUNDS", "1"))
CHUNKS, WRITERS, BATCH = 10, 4, 2_000
LOST_RACES = {ER.DUP_ENTRY, ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}


def made(pipe: Pipe, kinds: Mapping[str, Keyed], rows: int) -> None:
    """Every table, half of whose possible keys are there."""
    for name, keyed in kinds.items():
        names = ", ".join(keyed.names)
        pipe.sql(f"CREATE TABLE {name} ({keyed.columns}, v INT, PRIMARY KEY ({names})) DEFAULT CHARSET utf8mb4")
        numbers = range(0, min(2 * rows, keyed.count), 2)
        for start in range(0, len(numbers), BATCH):
            values = (f"({', '.join(keyed.literals(n))}, {n})" for n in numbers[start : start + BATCH])
            pipe.sql(f"INSERT INTO {name} VALUES {', '.join(values)}")


def at(keyed: Keyed, n: int) -> str:
    """The condition of the n-th key."""
    return " AND ".join(f"{name} = {literal}" for name, literal in zip(keyed.names, keyed.literals(n), strict=True))


def change(kinds: Mapping[str, Keyed], rows: int, chance: random.Random) -> list[str]:
    """A transaction: rows of a table are inserted, deleted, deleted and inserted again, moved, or merely respelled."""
    name = chance.choice(list(kinds))
    keyed = kinds[name]
    one, other = (chance.randrange(min(2 * rows, keyed.count)) for _ in range(2))
    insert = f"INSERT INTO {name} VALUES ({', '.join(keyed.literals(one))}, {chance.randrange(10**6)})"
    moved = ", ".join(f"{part} = {to}" for part, to in zip(keyed.names, keyed.literals(other), strict=True))
    delete = f"DELETE FROM {name} WHERE {at(keyed, one)}"
    return chance.choice(
        [
            [insert],
            [delete],
            [delete, insert],
            [f"UPDATE {name} SET {moved} WHERE {at(keyed, one)}"],
            [f"UPDATE {name} SET v = v + 1 WHERE {at(keyed, one)}", f"DELETE FROM {name} WHERE {at(keyed, other)}"],
            [f"UPDATE {name} SET k = {keyed.same} WHERE {at(keyed, one)}"] if keyed.same else [delete, insert],
        ]
    )


def written_to(pipe: Pipe, kinds: Mapping[str, Keyed], rows: int, seed: int) -> AbstractContextManager[None]:
    """Four writers change all tables while the block runs; none of them fails."""
    source = pipe.administrator

    def write(number: int, is_over: Callable[[], bool]) -> None:
        chance = random.Random(WRITERS * seed + number)
        with pymysql.connect(
            host=source.host,
            port=source.port,
            user=source.user,
            password=source.password.get_secret_value(),
            database=pipe.database,
        ) as connection:
            while not is_over():
                try:
                    with connection.cursor() as cursor:
                        for statement in change(kinds, rows, chance):
                            cursor.execute(statement)
                    connection.commit()
                except pymysql.err.MySQLError as error:
                    if error.args[0] not in LOST_RACES:
                        raise
                    connection.rollback()

    return beside(write, WRITERS)


@pytest.mark.long("copies 35 tables twice under four writers")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_kind_of_key_is_copied_exactly_under_writers(
    pipe_on: Callable[..., Pipe], any_server: LocalServer, seed: int
) -> None:
    """All of them as tables of one run: bootstrapped and caught up with while they are written to, then once quiet."""
    rows = ROWS if any_server.flavor is MYSQL else ROWS // 5
    pipe, kinds = pipe_on(any_server, chunk_rows=max(1, rows // CHUNKS)), keys_of(any_server.flavor)
    made(pipe, kinds, rows)
    with written_to(pipe, kinds, rows, seed):
        pipe.run()
    with written_to(pipe, kinds, rows, seed + ROUNDS):
        pipe.run()
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_0900_ai_ci"])
def test_flink_cdc_4413_a_collated_uuid_loses_no_change(pipe: Pipe, collation: str) -> None:
    """A text's order is the server's: after each wave rows all over the table change, respelled ones among them."""
    pipe.sql(f"CREATE TABLE t (id CHAR(36) COLLATE {collation} PRIMARY KEY, v INT)")
    keys = [KEYS["uuid"].literals(n)[0] for n in range(200)]
    spelled = [key.upper() if n % 2 else key for n, key in enumerate(keys)]
    pipe.sql(f"INSERT INTO t VALUES {', '.join(f'({key}, 0)' for key in spelled[:150])}")

    def change(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            chance = random.Random(event.wave)
            for key in chance.sample(keys[:150], 20):
                pipe.sql(f"UPDATE t SET v = v + 1, id = IF(v % 2, UPPER(id), LOWER(id)) WHERE id = {key}")
            for key in chance.sample(keys[:150], 5):
                pipe.sql(f"DELETE FROM t WHERE id = {key}")
            for key in chance.sample(keys, 5):
                pipe.sql(f"INSERT IGNORE INTO t VALUES ({key}, 9)")

    pipe.run(observe=change)
    assert len(pipe.seen(WaveCommitted)) > 1
    pipe.run()
    pipe.assert_equal()


class Broken(Exception):
    """What ends a run in mid-copy."""


@pytest.mark.long("waits for waves of a copy")
def test_a_copy_goes_on_where_it_was_broken_off(pipe: Pipe) -> None:
    """Also of keys that only the server can order: from the literal that the last wave ended at, none of them lost."""
    keyed = KEYS["mixed3"]
    pipe.sql(f"CREATE TABLE t ({keyed.columns}, v INT, PRIMARY KEY ({', '.join(keyed.names)}))")
    rows = (f"({', '.join(keyed.literals(n))}, 0)" for n in range(0, 600, 2))
    pipe.sql(f"INSERT INTO t VALUES {', '.join(rows)}")

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted) and not event.complete:
            raise Broken

    for broken in range(10):
        try:
            pipe.run(observe=stop)
            break
        except Broken:
            pipe.sql(
                f"UPDATE t SET v = v + 1 WHERE {at(keyed, 2 * broken)} OR {at(keyed, 500 + 2 * broken)}",
                f"DELETE FROM t WHERE {at(keyed, 300 + 2 * broken)}",
                f"INSERT INTO t VALUES ({', '.join(keyed.literals(2 * broken + 1))}, 1)",
            )
    waves = [event.wave for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)]
    assert waves == list(range(1, len(waves) + 1))
    assert broken > 1
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_keys_that_are_one_text_in_unicode_never_become_one_row(any_pipe: Pipe) -> None:
    """0x879C is to cp932 another key than 0x81BE, and the same character: the run stops, the lake keeps its rows."""
    pipe = any_pipe
    pipe.sql(
        "CREATE TABLE t (k VARCHAR(9) CHARACTER SET cp932 COLLATE cp932_bin PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (x'81BE', 1), (x'5C', 2)",
    )
    pipe.run()
    pipe.sql("UPDATE t SET v = 3")
    pipe.run()
    rows = pipe.rows("t")
    assert [row[:2] for row in rows] == [("\\", 3), ("\u222a", 3)]
    pipe.assert_equal()
    pipe.sql("INSERT INTO t VALUES (x'879C', 4)")
    for _ in range(2):
        with pytest.raises(UnsupportedValue, match=r"t from .*column k .*0x879c"):
            pipe.run()
        assert pipe.rows("t") == rows
