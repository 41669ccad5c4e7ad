"""The second decoder in runs: a fault of the fast one stops its table, and what is new is compared."""

import json
import stat
from collections.abc import Callable
from typing import Any

import pytest

from lakeingest.commands.status import status
from lakeingest.core.proofs.witness import FIRST_ROWS, Looked, Met
from lakeingest.demo.server import LocalServer
from lakeingest.errors import DecodersDisagree
from lakeingest.files.file import document
from lakeingest.files.local import Local
from lakeingest.pipeline.binlog import second_look, segment_task
from lakeingest.pipeline.run import witnessing
from lakeingest.state.witness import read_met, store_met
from lakeingest.version import VERSION
from tests.e2e.pipe import Pipe
from tests.faults.decoding import FAULTS, another_value, spoil

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = ", ".join(f"({number}, {number})" for number in range(9))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Looked]:
    """What was compared, look by look."""
    seen: list[Looked] = []

    def watched(*of_segment: Any) -> Any:
        looked, cost = second_look.look_again(*of_segment)
        seen.append(looked)
        return looked, cost

    monkeypatch.setattr(segment_task, "look_again", watched)
    return seen


def compared(looks: list[Looked]) -> int:
    """The number of row images that were compared; forgets the looks."""
    rows = sum(look.rows.total() for look in looks)
    looks.clear()
    return rows


def copied(pipe: Pipe) -> list[tuple[object, ...]]:
    """Two copied tables, and changes of both that no run has seen."""
    for name in ("orders", "items"):
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)", f"INSERT INTO {name} VALUES {ROWS}")
    pipe.run()
    for name in ("orders", "items"):
        pipe.sql(f"UPDATE {name} SET a = a + 1000 WHERE id < 4", f"INSERT INTO {name} VALUES (200, 1), (201, 3)")
    return pipe.rows("orders")


def found(pipe: Pipe) -> DecodersDisagree:
    """The error that a run ends with."""
    with pytest.raises(DecodersDisagree) as raised:
        pipe.run()
    return raised.value


def know_everything(pipe: Pipe, run_seconds: float) -> None:
    """As after long runs: nothing is new, and samples may cost a share of so many CPU seconds."""
    met = read_met(pipe.state, VERSION)
    rows = {server: dict.fromkeys(counts, FIRST_ROWS) for server, counts in met.rows.items()}
    store_met(pipe.state, Met(VERSION, rows, run_seconds=run_seconds))


@pytest.mark.formats
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("four runs", only=("hudi", "a lost row", "a doubled row"))
def test_a_fault_stops_its_table_before_readers_see_it(pipe: Pipe, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run after run, and the other table goes on; without the fault the same changes are read again, and are exact."""
    seen = copied(pipe)
    with monkeypatch.context() as patch:
        spoil(patch, "orders", FAULTS[fault])
        message = str(found(pipe))
        assert f"{pipe.database}.orders: the decoders disagree at " in message
        pipe.sql("INSERT INTO items VALUES (300, 1)")
        found(pipe)
    assert pipe.rows("orders") == seen
    assert len(pipe.rows("items")) == 12
    [orders] = [one for one in status(pipe.config) if one.table.name == "orders"]
    assert orders.stopped is not None
    assert orders.stopped.error == "DecodersDisagree"
    [file] = (pipe.state / "disagreements").listed("*.json")
    assert document(file)["table"] == f"{pipe.database}.orders"
    pipe.run()
    pipe.assert_equal()
    assert not any(one.stopped for one in status(pipe.config))


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11", "MariaDB 11.8"))
@pytest.mark.long("several runs; another test finds a fault in every run", only=("MySQL",))
def test_a_fault_is_found_on_every_server(any_pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows in the binlog do not name their columns."""
    seen = copied(any_pipe)
    with monkeypatch.context() as patch:
        spoil(patch, "orders", another_value)
        found(any_pipe)
    assert any_pipe.rows("orders") == seen
    any_pipe.run()
    any_pipe.assert_equal()


def test_values_are_shown_unless_the_option_masks_them(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the message and in the file, which only the user can read."""
    copied(pipe)
    spoil(monkeypatch, "orders", another_value)
    assert "about column a: -7, and the second one reads " in str(found(pipe))
    [file] = (pipe.state / "disagreements").listed("*.json")
    assert document(file)["fast"] == "-7"
    if isinstance(file, Local):
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    quality = pipe.config.quality.model_copy(update={"samples": False})
    pipe.config = pipe.config.model_copy(update={"quality": quality})
    assert str(found(pipe)).partition("about column a")[2].startswith(";")
    assert "-7" not in json.dumps(document(file))


@pytest.mark.long("several runs; another test finds a fault in every run")
def test_a_table_that_disagreed_is_compared_until_it_is_published(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, looks: list[Looked]
) -> None:
    """Although nothing is new, and no sample is due."""
    seen = copied(pipe)
    with monkeypatch.context() as patch:
        spoil(patch, "orders", another_value)
        found(pipe)
        know_everything(pipe, 0.0)
        found(pipe)
    assert pipe.rows("orders") == seen
    looks.clear()
    pipe.run()
    assert compared(looks) == 4 * 2 + 2
    pipe.sql("DELETE FROM orders WHERE id = 200")
    pipe.run()
    assert compared(looks) == 0
    pipe.assert_equal()


@pytest.mark.long("whole runs; test_second_decoder_of_chunks compares what is new in every run")
def test_what_is_new_is_compared(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, looks: list[Looked]) -> None:
    """A type, a default, and everything after an upgrade; what is known is not."""
    copied(pipe)
    pipe.run()
    assert compared(looks) == 2 * (4 * 2 + 2)
    know_everything(pipe, 0.0)
    pipe.sql("UPDATE orders SET a = 5")
    pipe.run()
    assert compared(looks) == 0
    pipe.sql("ALTER TABLE orders ADD b DECIMAL(9, 2)", "UPDATE orders SET b = 1.5 WHERE id < 3")
    pipe.run()
    assert compared(looks) == 3 * 2
    know_everything(pipe, 0.0)
    pipe.sql("ALTER TABLE orders ADD c DECIMAL(9, 2) DEFAULT 7.25", "UPDATE orders SET b = 2.5 WHERE id < 3")
    pipe.run()
    assert compared(looks) == 3 * 2
    know_everything(pipe, 0.0)
    monkeypatch.setattr(witnessing, "VERSION", f"{VERSION}.1")
    pipe.sql("UPDATE orders SET b = 3.5 WHERE id < 2")
    pipe.run()
    assert compared(looks) == 2 * 2
    pipe.assert_equal()


@pytest.mark.long("several runs; another test finds a fault in every run")
def test_samples_find_a_fault_and_cost_their_share(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, looks: list[Looked]
) -> None:
    """If nothing is new."""
    copied(pipe)
    pipe.run()
    seen = pipe.rows("orders")
    know_everything(pipe, 1000.0)
    pipe.sql("UPDATE orders SET a = 9")
    with monkeypatch.context() as patch:
        spoil(patch, "orders", another_value)
        found(pipe)
    assert pipe.rows("orders") == seen
    looks.clear()
    pipe.run()
    pipe.sql("UPDATE items SET a = 6")
    know_everything(pipe, 1000.0)
    looks.clear()
    pipe.run()
    assert [look.is_sample for look in looks if look.rows] == [True]
    met = read_met(pipe.state, VERSION)
    assert met.sampled == compared(looks)
    assert 0 < met.seconds < 0.01 * met.run_seconds


@pytest.mark.long("several runs; another test finds a fault in every run")
def test_gaps_are_named_by_status(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], looks: list[Looked]
) -> None:
    """The other columns of the same rows are compared."""
    pipe = pipe_on(mysql_server_with())
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSON, s VARCHAR(9) CHARACTER SET latin1)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (1, '{\"a\": 1}', 'ä')", "XA START 'x'", "INSERT INTO t (id) VALUES (2)")
    pipe.sql("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    pipe.sql("SET binlog_transaction_compression = ON", "INSERT INTO t (id) VALUES (3)")
    pipe.sql("SET binlog_transaction_compression = OFF")
    pipe.run()
    assert compared(looks) == 1
    [note] = [note for note in status(pipe.config).notes if note.startswith("the second decoder")]
    assert note.endswith("nothing is known to be wrong, and `lakeingest verify` compares all rows with the source")
    assert (
        " cannot check: charset latin1 (1 times), compressed transactions (1 times), transactions of XA (2 times),"
        " type json (1 times); "
    ) in note
    pipe.assert_equal()
