"""The ledger: what gates and comparisons have found becomes tables in the lake, and never disturbs a run."""

import time
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands.run import run
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.core.proofs import proof
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, PreflightFailed
from lakeingest.pipeline.events import Event, Following, Published, Undelivered
from lakeingest.pipeline.rounds import ledger
from lakeingest.state.ledger import note_trimmed, noted_results
from tests.e2e.pipe import Pipe
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

SUITE = """
expectations:
- {type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 100}}
- {type: expect_column_values_to_not_be_null, kwargs: {column: coupon}, severity: warning}
"""
SECRET = 123_456


@pytest.fixture
def noting(pipe: Pipe, tmp_path: Path) -> Pipe:
    """A pipeline with a ledger, a suite and a table with 30 rows, of which two have no coupon."""
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / f"{pipe.database}.orders.yml").write_text(SUITE)
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount INT, coupon VARCHAR(10))",
        f"INSERT INTO orders VALUES {', '.join(f'({n}, {n}, IF({n} > 1, {n}, NULL))' for n in range(30))}",
    )
    return with_quality(pipe, suites=folder)


def with_quality(pipe: Pipe, **keys: Any) -> Pipe:
    """The pipeline with a ledger of its own, and these keys of `quality`."""
    settings = {"ledger": f"_lakeingest_{pipe.database}", **keys}
    pipe.config = pipe.config.model_copy(update={"quality": Quality.model_validate(settings)})
    return pipe


def rows_of(pipe: Pipe, name: str) -> list[dict[str, Any]]:
    """The rows that readers see of a table of the ledger, in the order of their ids."""
    table = TableId(f"_lakeingest_{pipe.database}", name)
    return sorted(
        (row.asDict() for row in shown(pipe.spark, pipe.config.target, table).collect()), key=lambda r: r["id"]
    )


def results(pipe: Pipe) -> list[tuple[object, ...]]:
    """The last columns of the results before publishes; with sorted keys, because Spark finds them in any order."""
    names = "expectation", "severity", "success", "evaluated", "failing_rows"
    found = [row for row in rows_of(pipe, "quality") if row["stage"] == "before publish"]
    keys = [row["failing_keys"] and "; ".join(sorted(row["failing_keys"].split("; "))) for row in found]
    return [(*(row[name] for name in names), text) for row, text in zip(found, keys, strict=True)]


PASSED = ("all expectations of the definition", "critical", True, True, None, None)
AMOUNT = ("expect_column_values_to_be_between(amount)", "critical", True, True, None, None)
COUPON = ("expect_column_values_to_not_be_null(coupon)", "warning", False, True, 2, "id=0; id=1")


@pytest.mark.formats
@pytest.mark.long("suites and whole runs; other tests of this file write rows there")
def test_the_results_of_gates_are_rows(noting: Pipe) -> None:
    """One for each expectation of a suite, with the keys of failing rows and no other value."""
    noting.run()
    assert results(noting) == [PASSED, AMOUNT, COUPON]
    [row] = [row for row in rows_of(noting, "quality") if row["expectation"] == COUPON[0]]
    assert (row["source_table"], row["row_count"], row["suite"]) == (
        f"{noting.database}.orders",
        30,
        f"{noting.database}.orders.yml",
    )
    assert row["position"]
    assert row["run_began"] <= row["checked_at"]
    noting.run()  # nothing is published, so no gate is run
    assert len(results(noting)) == 3
    noting.sql(f"UPDATE orders SET amount = {SECRET} WHERE id = 7")
    with pytest.raises(GateFailed):
        noting.run()
    failed = (*AMOUNT[:2], False, True, 1, "id=7")
    assert results(noting) == [PASSED, AMOUNT, COUPON, PASSED, failed, COUPON]
    assert str(SECRET) not in str(rows_of(noting, "quality"))
    assert not noting.seen(Undelivered)
    assert [str(one.table) for one in status(noting.config)] == [f"{noting.database}.orders"]


@pytest.mark.formats
@pytest.mark.long("whole runs, for what happens once a day")
def test_old_results_are_deleted_once_a_day(noting: Pipe) -> None:
    """With the commit of new ones."""
    noting.run()
    assert len(results(noting)) == 3
    old = {row["id"] for row in rows_of(noting, "quality")}
    time.sleep(1.1)
    with_quality(noting, suites=noting.config.quality.suites, ledger_keep="1s")
    noting.sql("UPDATE orders SET amount = 5 WHERE id = 7")
    noting.run()
    assert len(results(noting)) == 6  # they were looked at today
    note_trimmed(noting.state, "2026-01-01")
    time.sleep(1.1)
    noting.sql("UPDATE orders SET amount = 6 WHERE id = 7")
    noting.run()
    assert results(noting) == [PASSED, AMOUNT, COUPON]
    assert not old & {row["id"] for row in rows_of(noting, "quality")}
    assert not noting.seen(Undelivered)


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
@pytest.mark.parametrize("step", ["publish", "removal"])
@pytest.mark.long("one of the steps in turn", turn="step")
def test_a_run_that_dies_leaves_no_result_twice(noting: Pipe, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the publish, or after it and before it has noted that."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    boundary: tuple[object, str] = (ledger.Ledger, "_shown") if step == "publish" else (ledger, "remove_results")
    with monkeypatch.context() as patch:
        patch.setattr(*boundary, dies)
        with pytest.raises(KeyboardInterrupt):
            noting.run()
    noting.run()
    assert results(noting) == [PASSED, AMOUNT, COUPON]
    assert noted_results(noting.state) == ([], [])


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_the_states_of_ranges_are_rows(noting: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `status` has them; ranges that no longer are disappear, and those of other tables stay."""
    for name in ("FIRST_ROWS", "LEAST_ROWS", "MOST_ROWS"):
        monkeypatch.setattr(proof, name, 10)
    noting.sql("CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    verify = {"every": "1s", "budget": "100%"}
    with_quality(noting, verify=verify)
    noting.run()
    found = rows_of(noting, "proofs")
    assert [(row["source_table"].partition(".")[2], row["lower_key"], row["state"]) for row in found] == [
        ("orders", "[10]", "proven"),
        ("orders", "[20]", "proven"),
        ("orders", None, "proven"),
        ("other", None, "proven"),
    ]
    assert all(row["position"] and row["proven_at"] == row["checked_at"] for row in found)
    monkeypatch.setattr(proof, "MOST_ROWS", 100)
    monkeypatch.setattr(proof, "LEAST_ROWS", 100)
    noting.sql("UPDATE orders SET amount = 1 WHERE id = 7")
    time.sleep(1.1)  # a range is due after a second
    noting.run("orders")
    later = rows_of(noting, "proofs")
    assert [(row["source_table"].partition(".")[2], row["lower_key"]) for row in later] == [
        ("orders", None),
        ("other", None),
    ]
    assert later[0]["proven_at"] > found[0]["proven_at"]
    assert later[1] == found[3]
    assert not noting.seen(Undelivered)


@pytest.mark.long("follows for seconds")
def test_a_run_that_follows_writes_what_is_new(noting: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its rounds; what it has written before is not written again."""
    monkeypatch.setattr(ledger, "PAUSE_SECONDS", 0.0)
    until = time.monotonic() + 200

    def observe(event: Event) -> None:
        noting.events.append(event)
        if isinstance(event, Following):
            noting.sql("UPDATE orders SET coupon = NULL WHERE id = 9")

    def stopping() -> bool:
        is_written = len(noting.seen(Published)) > 1 and noted_results(noting.state) == ([], [])
        return is_written or time.monotonic() > until

    run(noting.config, observe=observe, spark=noting.spark, follow=True, stopping=stopping)
    assert results(noting) == [PASSED, AMOUNT, COUPON, (*COUPON[:4], 3, "id=0; id=1; id=9")]
    assert not noting.seen(Undelivered)


def test_a_ledger_that_cannot_be_written_stops_nothing(noting: Pipe) -> None:
    """Someone else has a table of its name: the copy is published, and a later run writes the results."""
    name = f"`{noting.config.target.catalog.name}`.`_lakeingest_{noting.database}`"
    noting.spark.sql(f"CREATE NAMESPACE {name}")
    noting.spark.sql(f"CREATE TABLE {name}.quality (v INT) USING iceberg")
    noting.run()
    noting.assert_equal()
    [event] = noting.seen(Undelivered)
    assert isinstance(event, Undelivered)
    assert event.what == "quality.ledger"
    assert "NotOurTable" in event.reason
    noting.spark.sql(f"DROP TABLE {name}.quality")
    noting.run()
    assert results(noting) == [PASSED, AMOUNT, COUPON]


def test_a_reserved_database_of_the_source_is_refused_by_name(pipe: Pipe) -> None:
    """Its tables would have the names of the ledger's. Other tables are copied."""
    with_quality(pipe)
    reserved = f"_lakeingest_{pipe.database}"
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE DATABASE {reserved}")
    pipe.sql(f"CREATE TABLE {reserved}.quality (id INT PRIMARY KEY)")
    tables = pipe.config.tables.model_copy(update={"include": (f"{pipe.database}.*", f"{reserved}.*")})
    pipe.config = pipe.config.model_copy(update={"tables": tables, "source": pipe.administrator})
    try:
        for _ in range(2):  # the second run finds the ledger's table
            with pytest.raises(PreflightFailed, match="are for tables that lakeingest itself makes"):
                run(pipe.config, spark=pipe.spark)
            assert [row["source_table"] for row in rows_of(pipe, "quality")] == [f"{pipe.database}.t"]
            assert pipe.rows("t") == []
    finally:
        pipe.sql(f"DROP DATABASE {reserved}")


def test_without_the_key_nothing_is_written(pipe: Pipe) -> None:
    """Neither into the lake nor into the state folder."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    pipe.run()
    assert not (pipe.state / "ledger").is_there()


@pytest.mark.parametrize("name", ["shop", "_Lakeingest", "_lakeingest.x", "_lakeingest-x", ""])
def test_only_reserved_names_are_taken(name: str) -> None:
    """So that no copy can have the name."""
    with pytest.raises(ValueError, match="ledger"):
        Quality(ledger=name)
