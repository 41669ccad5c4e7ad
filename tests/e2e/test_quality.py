"""Gates between the stages: what fails is never seen by a reader, and what is mended is published by the next run."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, PreflightFailed
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.pipeline.events import GateRun, Measured, Published, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.lake.shown import is_shown

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(8,2) UNSIGNED, state ENUM('new', 'paid') NOT NULL)"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i}.50, {1 + i % 2})' for i in range(90))}"
CHEAP = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 100}}]"


@pytest.fixture
def rule(pipe: Pipe, tmp_path: Path) -> Callable[..., None]:
    """Call it with the text of a suite: it is asked of the orders from then on."""
    folder = tmp_path / "suites"
    folder.mkdir()
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(folder))})

    def write(text: str, table: str = "orders") -> None:
        (folder / f"{pipe.database}.{table}.yml").write_text(text)

    return write


def is_visible(pipe: Pipe) -> bool:
    """Whether readers see the orders."""
    return is_shown(pipe.spark, pipe.config.target, TableId(pipe.database, "orders"))


def reports(pipe: Pipe) -> list[File]:
    """The documents of the gates so far, in order."""
    return (pipe.state / "quality" / f"{pipe.database}.orders").listed("*.json")


@pytest.mark.long("many gates on Hudi", only=("hudi",))
def test_every_wave_and_every_publish_pass_a_gate(pipe: Pipe) -> None:
    """In that order, each with its report: the last wave with the publish. A quiet table that is shown passes none."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    waves = len(pipe.seen(WaveCommitted))
    assert waves > 1
    stages = [*(f"after wave {number}" for number in range(1, waves)), "before publish"]
    assert [event.stage for event in pipe.seen(GateRun) if isinstance(event, GateRun)] == stages
    assert [type(event) for event in pipe.events[-3:]] == [GateRun, Published, Measured]
    assert len(reports(pipe)) == waves
    assert all(files.document(path)["success"] for path in reports(pipe))
    assert all(b"<html" in path.with_suffix(".html").read() for path in reports(pipe))
    pipe.run()
    assert len(pipe.seen(GateRun)) == waves


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_bad_row_is_stopped_before_any_reader_sees_it(pipe: Pipe, rule: Callable[..., None]) -> None:
    """Readers keep the old rows, run after run, until it is mended in the source: then the next run publishes."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    seen = pipe.rows("orders")
    pipe.sql("INSERT INTO orders VALUES (500, 20, 1)", "UPDATE orders SET amount = 1000 WHERE id = 7")
    for _ in range(2):
        with pytest.raises(GateFailed) as stopped:
            pipe.run()
        [page] = [path.with_suffix(".html") for path in reports(pipe)[-1:]]
        assert str(stopped.value) == (
            f"{pipe.database}.orders was not published, it failed the gate before publish: "
            f"expect_column_values_to_be_between(amount) of {pipe.database}.orders.yml fails on 1 rows, such as "
            f"id=7; readers keep the last good commit; all of it is in {page}"
        )
        assert stopped.value.exit_code == 1
        assert pipe.rows("orders") == seen
    pipe.sql("UPDATE orders SET amount = 10 WHERE id = 7")
    pipe.run()
    assert len(pipe.rows("orders")) == 91
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_with_a_bad_row_is_not_shown(pipe: Pipe, rule: Callable[..., None]) -> None:
    """There is no table for readers until it is mended; nothing is copied twice for it."""
    rule(CHEAP)
    pipe.sql(ORDERS, ROWS, "UPDATE orders SET amount = 1000 WHERE id = 7")
    with pytest.raises(GateFailed, match="before publish"):
        pipe.run()
    assert not is_visible(pipe)
    waves = len(pipe.seen(WaveCommitted))
    pipe.sql("DELETE FROM orders WHERE id = 7")
    pipe.run()
    assert is_visible(pipe)
    pipe.assert_equal()
    assert len(pipe.seen(WaveCommitted)) == waves


@pytest.mark.long("one more run with a suite")
def test_a_suite_written_later_is_asked_at_the_next_publish(pipe: Pipe, rule: Callable[..., None]) -> None:
    """A table that stands still is not asked again; `status` tells which suites were."""
    pipe.sql(ORDERS, ROWS)
    pipe.run()
    rule(CHEAP)
    pipe.run()
    [before] = status(pipe.config)
    assert before.gate is not None
    assert before.gate["suites"] == ["schema"]
    pipe.sql("DELETE FROM orders WHERE id = 7")
    pipe.run()
    [after] = status(pipe.config)
    assert after.gate is not None
    assert after.gate["suites"] == [f"{pipe.database}.orders.yml", "schema"]
    assert (after.gate["success"], after.gate["rows"], after.gate["warnings"]) == (True, 89, 0)


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_wrong_suite_is_reported_before_anything_is_copied(pipe: Pipe, rule: Callable[..., None]) -> None:
    """By `check`, and by a run, which makes nothing."""
    rule("expectations: [{type: expect_column_to_exist, kwargs: {column: amuont}}]")
    rule(CHEAP, table="order")
    pipe.sql(ORDERS, ROWS)
    findings = {one.name: one.finding or "" for one in check(pipe.config).checked}
    assert f"{pipe.database}.orders has no column amuont" in findings["columns in quality suites"]
    assert f"{pipe.database}.order.yml names no table that is copied" in findings["quality suites"]
    with pytest.raises(PreflightFailed) as refused:
        pipe.run()
    for name in ("columns in quality suites", "quality suites"):
        assert findings[name] in str(refused.value)
    assert pipe.events == []


UNASKED = """
import json, sys
from lakeingest.config import Config
from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.status import status
config = Config.model_validate_json(sys.argv[1])
assert check(config).checked and plan(config) and status(config)
assert "great_expectations" not in sys.modules
"""


@pytest.mark.long("starts Python three times")
def test_commands_without_a_gate_never_wait_for_great_expectations(pipe: Pipe) -> None:
    """`check`, `plan` and `status` answer without importing it, where nobody wrote a suite."""
    pipe.sql(ORDERS, ROWS)
    config = pipe.config.model_dump(mode="json", by_alias=True, exclude={"submit"}) | {
        "source": pipe.config.source.model_dump(mode="json")
        | {"password": pipe.config.source.password.get_secret_value()}
    }
    subprocess.run([sys.executable, "-c", UNASKED, json.dumps(config)], cwd=ROOT, check=True, timeout=100)
