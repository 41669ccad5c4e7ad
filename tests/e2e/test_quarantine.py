"""Rows that fail a gate move to the quarantine: the copy and the quarantine together are the source."""

import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands import quarantine
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.config.quality import Quarantine
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, UsageError
from lakeingest.pipeline.events import Measured, Quarantined
from lakeingest.state.evidence import Evidence, read_evidence
from tests.e2e.pipe import Pipe
from tests.e2e.test_signals_killed_anywhere import Dead, mortal

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(8,2), note VARCHAR(20))"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i}.50, NULL)' for i in range(90))}"
CHEAP = "{type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 100}}"
HISTORIES = int(os.environ.get("LAKEINGEST_QUARANTINES", "1"))
STRIDE = 4  # a run dies at every fourth step; the first of these steps is another one in each history


@pytest.fixture
def rule(pipe: Pipe, tmp_path: Path) -> Callable[..., None]:
    """Call it with expectations: they are asked of the orders from then on, and rows that fail leave the table."""
    folder = tmp_path / "suites"
    folder.mkdir()
    limit = Quarantine.model_validate({"max_rows": 4, "max_share": "10%"})
    quality = Quality(suites=Place.of(folder), on_failure="quarantine", quarantine=limit)
    pipe.config = pipe.config.model_copy(update={"quality": quality})

    def write(*expectations: str, table: str = "orders") -> None:
        text = "".join(f"\n  - {each}" for each in expectations)
        (folder / f"{pipe.database}.{table}.yml").write_text(f"expectations:{text}\n")

    return write


def evidence_of(pipe: Pipe, table: str = "orders") -> list[Mapping[str, Any]]:
    """What is stored of rows that failed."""
    return [dict(row) for row in read_evidence(pipe.state, TableId(pipe.database, table))]


def ids(pipe: Pipe, table: str = "orders") -> set[object]:
    """The keys that readers see."""
    return {row[0] for row in pipe.rows(table)}


@pytest.mark.long("suites and publishes of Hudi", only=("hudi",))
def test_failing_rows_leave_the_table_and_the_rest_is_published(pipe: Pipe, rule: Callable[..., None]) -> None:
    """Also not their old rows. A later sound image, a delete or a move frees the key; a worse one does not."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS, "UPDATE orders SET amount = 1000 WHERE id IN (3, 60)")
    pipe.run()
    assert ids(pipe) == set(range(90)) - {3, 60}
    pipe.sql("UPDATE orders SET amount = 2000 WHERE id = 7", "INSERT INTO orders VALUES (100, 1, NULL)")
    pipe.run()
    assert ids(pipe) == {*range(90), 100} - {3, 7, 60}
    stored = {row["id"]: row for row in evidence_of(pipe)}
    assert stored.keys() == {3, 7, 60}
    assert (stored[7]["amount"], stored[7]["_lakeingest_change_kind"]) == (2000, "+U")
    assert stored[3]["_lakeingest_change_kind"] is None
    assert [row["_lakeingest_released_at"] for row in stored.values()] == [None] * 3
    pipe.sql("UPDATE orders SET amount = 10 WHERE id = 3", "UPDATE orders SET amount = 3000 WHERE id = 7")
    pipe.sql("UPDATE orders SET id = 160, amount = 1 WHERE id = 60")
    pipe.run()
    assert ids(pipe) == {*range(90), 100, 160} - {7, 60}
    assert {(row["id"], row["amount"]) for row in evidence_of(pipe) if row["_lakeingest_released_at"] is None} == {
        (7, 2000),
        (7, 3000),
    }
    pipe.sql("DELETE FROM orders WHERE id = 7")
    pipe.run()
    pipe.assert_equal()
    assert all(row["_lakeingest_released_at"] for row in evidence_of(pipe))
    assert len(pipe.seen(Quarantined)) == 3
    told = [event.tables[0].quarantined for event in pipe.seen(Measured) if isinstance(event, Measured)]
    assert told == [2, 3, 1, 0]


@pytest.mark.long("a suite and whole runs; tests/core has the limits")
def test_a_limit_stops_the_table_and_nothing_is_moved(pipe: Pipe, rule: Callable[..., None]) -> None:
    """So does an expectation that blames no single rows."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    seen = pipe.rows("orders")
    pipe.sql("UPDATE orders SET amount = 1000 WHERE id < 5")
    with pytest.raises(GateFailed, match=r"5 rows would be in quarantine, and .* allows 4"):
        pipe.run()
    pipe.sql("UPDATE orders SET amount = 10 WHERE id BETWEEN 1 AND 4")
    rule(CHEAP, "{type: expect_table_row_count_to_be_between, kwargs: {max_value: 10}}")
    with pytest.raises(GateFailed, match="blames no single rows"):
        pipe.run()
    assert pipe.rows("orders") == seen
    assert evidence_of(pipe) == []
    assert pipe.seen(Quarantined) == []
    rule(CHEAP)
    pipe.run()
    assert ids(pipe) == set(range(1, 90))


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_keys_are_listed_and_released_after_a_fix(pipe: Pipe, rule: Callable[..., None]) -> None:
    """`status` and `verify` name them. A release reads the rows again, and those that still fail stay."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    pipe.sql("UPDATE orders SET amount = 100 + id WHERE id IN (7, 8, 9)", "DELETE FROM orders WHERE id = 70")
    pipe.run()
    name = f"{pipe.database}.orders"
    assert [(kept.key, kept.change) for kept in quarantine.listed(pipe.config)] == [
        ("[7]", "+U"),
        ("[8]", "+U"),
        ("[9]", "+U"),
    ]
    [told] = status(pipe.config, [name])
    assert (told.quarantined, told.rows) == (3, 86)
    verified = pipe.verify("orders")["orders"]
    assert (verified.differs, verified.equal, verified.quarantined) == (False, False, ((7,), (8,), (9,)))
    assert verified.result == "source = target, but for 3 rows in quarantine"
    with pytest.raises(UsageError):
        quarantine.release(pipe.config, name, ["x"], spark=pipe.spark)
    # the rule was too strict: two of the rows are sound, and one of them comes back by its key
    rule(CHEAP.replace("100}", "108}"))
    quarantine.release(pipe.config, name, [7], spark=pipe.spark).raise_failure()
    assert [kept.key for kept in quarantine.listed(pipe.config)] == ["[8]", "[9]"]
    pipe.unlogged("DELETE FROM orders WHERE id = 9")
    quarantine.release(pipe.config, name, spark=pipe.spark).raise_failure()
    assert list(quarantine.listed(pipe.config)) == []
    assert {row["id"] for row in evidence_of(pipe)} == {7, 8, 9}
    [last] = [kept.row for kept in quarantine.shown(pipe.config, name) if kept.key == "[9]"]
    assert last == {"id": 9, "amount": "109.00", "note": None}
    pipe.assert_equal()
    with pytest.raises(UsageError, match="no key is in quarantine"):
        quarantine.release(pipe.config, name)
    assert quarantine.drop(pipe.config, name) == 3
    assert list(quarantine.shown(pipe.config, name)) == []


@pytest.mark.long("a case that few copies have")
def test_a_copy_that_keeps_deleted_rows_stops(pipe: Pipe, rule: Callable[..., None]) -> None:
    """No row of it is ever removed."""
    rule(CHEAP)
    options = {"*.*": TableOptions(deletes="soft", chunk_rows=10)}
    pipe.config = pipe.config.model_copy(update={"tables": pipe.config.tables.model_copy(update={"options": options})})
    pipe.sql(ORDERS, ROWS, "UPDATE orders SET amount = 1000 WHERE id = 89")
    with pytest.raises(GateFailed, match="deletes: soft has no quarantine"):
        pipe.run()
    assert evidence_of(pipe) == []


@pytest.mark.long("a case that few copies have")
def test_a_table_whose_changes_are_not_all_logged_stops(
    pipe_on: Callable[..., Pipe], silent: LocalServer, tmp_path: Path
) -> None:
    """What foreign keys change is found by the rows of the copy."""
    pipe = pipe_on(silent, cascades="read")
    (tmp_path / f"{pipe.database}.child.yml").write_text(f"expectations: [{CHEAP}]")
    quality = Quality(suites=Place.of(tmp_path), on_failure="quarantine")
    pipe.config = pipe.config.model_copy(update={"quality": quality})
    pipe.sql(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, amount INT,"
        " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (1, 1, 5), (2, 1, 1000)",
    )
    with pytest.raises(GateFailed, match="foreign keys change its rows outside the binlog"):
        pipe.run()
    assert evidence_of(pipe, "child") == []


KEYS = {
    "text": ("k VARCHAR(20) PRIMARY KEY", ["'a'", "'B'", "'ä, \\'b'"]),
    "several": (
        "k BIGINT UNSIGNED, l DATETIME(3), PRIMARY KEY (k, l)",
        ["1, '2020-01-01'", "2, '2020-01-02 01:02:03'"],
    ),
    "bytes": ("k VARBINARY(8) PRIMARY KEY", ["x'00'", "x'ff27'"]),
    "decimal": ("k DECIMAL(10,2) PRIMARY KEY", ["1.50", "-2"]),
    "members": ("k ENUM('x', 'y,z') PRIMARY KEY", ["'x'", "'y,z'"]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.long("types of keys, each of which tests/mysql/test_key_values reads in every run")
def test_keys_of_every_type_leave_and_return(pipe: Pipe, rule: Callable[..., None], kind: str) -> None:
    """Whoever knows their order. A row that is released is read by its key."""
    columns, keys = KEYS[kind]
    rule(CHEAP)
    pipe.sql(f"CREATE TABLE orders (amount INT, {columns})")
    pipe.sql(*(f"INSERT INTO orders VALUES (5, {key})" for key in keys))
    pipe.run()
    pipe.sql("UPDATE orders SET amount = 500 ORDER BY k LIMIT 1")
    pipe.run()
    assert len(pipe.rows("orders")) == len(keys) - 1
    assert pipe.verify("orders")["orders"].differs is False
    rule(CHEAP.replace("100}", "1000}"))
    quarantine.release(pipe.config, f"{pipe.database}.orders", spark=pipe.spark).raise_failure()
    pipe.assert_equal()


@pytest.mark.long("a suite and whole runs; tests/core has the decision")
def test_a_truncate_and_a_new_copy_free_all_keys(pipe: Pipe, rule: Callable[..., None]) -> None:
    """There is nothing left of the rows that failed."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS, "UPDATE orders SET amount = 1000 WHERE id = 3")
    pipe.run()
    pipe.sql("TRUNCATE orders", "INSERT INTO orders VALUES (1, 1, NULL)")
    pipe.run()
    pipe.assert_equal()
    assert list(quarantine.listed(pipe.config)) == []
    assert all(row["_lakeingest_released_at"] for row in evidence_of(pipe))


def changed_by_chance(pipe: Pipe, chance: random.Random) -> None:
    """A few changes, of which some fail and some mend what failed."""
    for _ in range(chance.randint(1, 4)):
        key, other = chance.randrange(30), chance.randrange(30, 40)
        amount = chance.choice([1, 2, 1000])
        pipe.sql(
            chance.choice(
                [
                    f"REPLACE INTO orders VALUES ({key}, {amount}, 'r')",
                    f"UPDATE orders SET amount = {amount} WHERE id = {key}",
                    f"DELETE FROM orders WHERE id = {key}",
                    f"UPDATE IGNORE orders SET id = {other} WHERE id = {key}",
                ]
            )
        )


def source_rows(pipe: Pipe) -> frozenset[tuple[object, ...]]:
    """The rows in the source."""
    with pipe.connection.cursor() as cursor:
        cursor.execute("SELECT id, amount, note FROM orders")
        return frozenset(cursor.fetchall())


def sound(rows: frozenset[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """The rows that pass the gate."""
    return {row for row in rows if float(str(row[1])) <= 100}


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.long("a run for many steps of a run")
def test_the_copy_and_the_quarantine_are_the_source_wherever_runs_die(
    pipe: Pipe, rule: Callable[..., None], seed: int
) -> None:
    """A random history with failing rows. Readers see the sound rows of one moment after the other, and no other."""
    chance = random.Random(seed)
    rule(CHEAP)
    limit = Quarantine.model_validate({"max_rows": 100, "max_share": "100%"})
    quality = pipe.config.quality.model_copy(update={"quarantine": limit})
    pipe.config = pipe.config.model_copy(update={"quality": quality})
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {', '.join(f'({i}, {i % 3}, NULL)' for i in range(30))}")
    pipe.run()
    moments, seen = [source_rows(pipe)], 0
    for at in count(1 + seed % STRIDE, STRIDE):
        changed_by_chance(pipe, chance)
        if chance.random() < 1 / 3 and quarantine.listed(pipe.config):
            quarantine.release(pipe.config, f"{pipe.database}.orders", wait=False)
        moments.append(source_rows(pipe))
        with mortal(pipe, at) as mortality, pytest.MonkeyPatch.context() as patch:
            for name in ("store", "close"):
                patch.setattr(Evidence, name, mortality.after(getattr(Evidence, name)))
            with suppress(Dead):
                pipe.run()
        shown = set(pipe.rows("orders"))
        seen = next((n for n in range(seen, len(moments)) if sound(moments[n]) == shown), -1)
        assert seen >= 0, (at, shown)
        if not mortality.dead:
            break
    pipe.run()
    rows = source_rows(pipe)
    listed = {int(kept.key.strip("[]")) for kept in quarantine.listed(pipe.config)}
    assert set(pipe.rows("orders")) == sound(rows)
    assert listed == {row[0] for row in rows - sound(rows)}
    held = [row for row in evidence_of(pipe) if row["_lakeingest_released_at"] is None]
    assert {(row["id"], row["amount"], row["note"]) for row in held} >= rows - sound(rows)
    assert {row["id"] for row in held} == listed
    assert pipe.verify("orders")["orders"].differs is False
