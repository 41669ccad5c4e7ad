"""Columns that `tables.options` → `columns` hides: hashes and masks, in every phase of a copy."""

import hmac
import re
from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.repair import repair
from lakeingest.commands.signal import ask
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed, SchemaChanged
from lakeingest.pipeline.events import Lifted, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines
from tests.e2e.test_left_out_columns import holding, source_rows
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

KEY = "a-key-of-hashes-for-tests"
CANARY = "canary-that-is-hidden"


def hide(pipe: Pipe, key: str | None = KEY, chunk_rows: int = 10, **columns: list[str]) -> None:
    """Let the config hide these columns of every table."""
    options = {"*.*": TableOptions.model_validate({"columns": columns, "chunk_rows": chunk_rows})}
    tables = Tables.model_validate({"include": pipe.config.tables.include, "hash_key": key})
    tables = tables.model_copy(update={"options": options})
    source = pipe.config.source.with_hash_key(tables.secret)
    pipe.config = pipe.config.model_copy(update={"tables": tables, "source": source})


def digest(value: object) -> str | None:
    """The hash of a value."""
    return None if value is None else hmac.new(KEY.encode(), str(value).encode(), "sha256").hexdigest()


def mask(value: object) -> str | None:
    """The mask of a text of ASCII."""
    if value is None:
        return None
    return re.sub("[0-9]", "9", re.sub("[A-Z]", "X", re.sub("[a-z]", "x", str(value))))


def assert_hidden(pipe: Pipe, table: str = "t") -> None:
    """The copy has the source's rows, with hashes of `mail` and `n`, and masks of `phone`; `verify` says so, too."""
    wanted = [
        (row_id, digest(mail), mask(phone), digest(n), v)
        for row_id, mail, phone, n, v in source_rows(pipe, table, "id, mail, phone, n, v")
    ]
    copied = shown(pipe.spark, pipe.config.target, TableId(pipe.database, table)).select(
        "id", "mail", "phone", "n", "v"
    )
    assert sorted(tuple(row) for row in copied.collect()) == wanted
    pipe.assert_equal(table)


@pytest.mark.local
@pytest.mark.long("the same on another server", only=("MariaDB 10.11", "MariaDB 11.4"))
def test_a_copy_has_hashes_and_masks_in_every_phase(any_pipe: Pipe) -> None:
    """First copy, changes, a re-snapshot, a repair; no file has a value. One value has one hash in two tables."""
    pipe = any_pipe
    rows = ", ".join(f"({n}, '{CANARY}{n}', '+49 {CANARY} {n}', {n * 1000}, {n})" for n in range(25))
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(80), phone VARCHAR(80), n BIGINT, v INT)",
        f"INSERT INTO t VALUES {rows}, (100, NULL, NULL, NULL, NULL)",
        "CREATE TABLE o (id INT PRIMARY KEY, mail TEXT CHARACTER SET latin1)",
        f"INSERT INTO o VALUES (1, '{CANARY}1')",
    )
    hide(pipe, hash=["Mail", "n"], mask=["phone"])
    assert {name for planned in plan(pipe.config) for name in planned.lossy} == {
        "mail: hashed",
        "n: hashed",
        "phone: masked",
    }
    pipe.run()
    assert_hidden(pipe)
    assert pipe.rows("o") == [(1, digest(f"{CANARY}1"))]
    pipe.sql(
        f"UPDATE t SET mail = 'new {CANARY}', phone = '0123 A' WHERE id < 3",
        "UPDATE t SET n = NULL, v = 7 WHERE id = 5",
        "UPDATE t SET id = 90 WHERE id = 9",
        "DELETE FROM t WHERE id = 8",
        f"INSERT INTO t VALUES (91, '{CANARY}', '{CANARY}', -5, 1)",
    )
    pipe.run()
    assert_hidden(pipe)
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    pipe.run()
    assert_hidden(pipe)
    changes = "".join(lines(pipe))
    assert str(digest(f"new {CANARY}")) in changes
    assert holding(pipe, "xxxxxx-xxxx-xx-xxxxxx")
    assert holding(pipe, CANARY) == set()
    assert KEY not in changes
    assert holding(pipe, KEY) == set()


@pytest.mark.parametrize("key", ["INT", "VARCHAR(9)"])
@pytest.mark.long("verifies and repairs once more", only=("VARCHAR(9)",))
def test_rows_that_differ_in_a_hidden_column_are_found_and_repaired(pipe: Pipe, key: str) -> None:
    """By the same hashes of both sides, also where only the server knows the order of the keys."""
    pipe.sql(
        f"CREATE TABLE t (id {key} PRIMARY KEY, mail VARCHAR(80), phone VARCHAR(20), n INT, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({n}, {n}, {n}, {n}, {n})' for n in range(10, 40))}",
    )
    hide(pipe, hash=["mail", "n"], mask=["phone"])
    pipe.run()
    pipe.unlogged(
        "UPDATE t SET mail = 'other' WHERE id = '11'",
        "UPDATE t SET phone = '+12' WHERE id = '12'",
        "UPDATE t SET phone = '99' WHERE id = '13'",  # the same mask
        "DELETE FROM t WHERE id = '14'",
    )
    [result] = pipe.verify().values()
    assert [str(one.key[0]) for one in result.differences] == ["11", "12", "14"]
    [repaired] = repair(pipe.config, [f"{pipe.database}.t"], pipe.spark)
    assert repaired.equal, repaired
    assert len(repaired.repaired) == 3
    assert_hidden(pipe)


@pytest.mark.long("whole runs; test_random_shapes draws such DDL in every run")
def test_ddl_beside_and_of_hidden_columns_is_followed_or_read_again(pipe: Pipe) -> None:
    """A longer text keeps its hash, a number of other digits has another one, and a default is masked."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(20), n DECIMAL(6,2), v INT)",
        "INSERT INTO t VALUES (1, 'a@b', 1.5, 1), (2, NULL, NULL, 2)",
    )
    hide(pipe, hash=["mail", "n"], mask=["phone"])
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    pipe.sql(
        "ALTER TABLE t MODIFY mail VARCHAR(50), ADD w INT",
        "INSERT INTO t VALUES (3, 'c@d', 3, 3, 3)",
        "ALTER TABLE t ADD phone VARCHAR(20) NOT NULL DEFAULT 'Call 0' AFTER mail",
        "INSERT INTO t VALUES (4, 'e@f', '+1', 4, 4, 4)",
    )
    assert pipe.run().stopped == ()
    assert_hidden(pipe)
    assert len(pipe.seen(Lifted)) == 2
    assert len(pipe.seen(WaveCommitted)) == waves
    pipe.sql("ALTER TABLE t MODIFY n DECIMAL(8,3)", "INSERT INTO t VALUES (5, 'g@h', '+2', 5.125, 5, 5)")
    assert pipe.run().stopped == ()
    assert_hidden(pipe)
    pipe.sql("ALTER TABLE t RENAME COLUMN mail TO address", "INSERT INTO t VALUES (6, 'i@j', '+3', 6, 6, 6)")
    with pytest.raises(SchemaChanged, match="address may be that column under another name"):
        pipe.run()
    assert "address" not in shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t")).columns


def test_another_key_or_form_stops_a_copy_until_it_is_made_again(pipe: Pipe) -> None:
    """No copy has hashes of two keys."""
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(20), phone VARCHAR(20), n INT, v INT)",
        "INSERT INTO t VALUES (1, 'a', 'b', 3, 4)",
    )
    hide(pipe, "another-key-of-hashes", hash=["mail", "n"], mask=["phone"])
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (2, 'a', 'b', 3, 4)")
    hide(pipe, hash=["mail", "n"], mask=["phone"])
    with pytest.raises(SchemaChanged, match=r"DDL or tables\.options changed its definition"):
        pipe.run()
    assert len(pipe.rows("t")) == 1
    [done] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert done.state == "done", done.why
    assert_hidden(pipe)
    hide(pipe, hash=["mail", "phone", "n"])
    with pytest.raises(SchemaChanged, match=r"DDL or tables\.options changed its definition"):
        pipe.run()


def test_hashes_without_a_key_are_refused(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> None:
    """Before anything is read."""
    pipe = pipe_on(mysql_server)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, mail INT)", "INSERT INTO t VALUES (1, 1)")
    hide(pipe, None, hash=["mail"])
    assert [one.name for one in check(pipe.config).problems] == ["keys and types"]
    with pytest.raises(PreflightFailed, match=r"\.t: columns → hash needs a key; set tables\.hash_key"):
        pipe.run()
