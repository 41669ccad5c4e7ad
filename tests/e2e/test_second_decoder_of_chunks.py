"""The second decoder of chunks: a fault of the fast one stops its table, and what is new is compared."""

from collections.abc import Callable

import pytest

from lakeingest.commands.status import status
from lakeingest.core.proofs.witness import FIRST_ROWS, Met
from lakeingest.demo.server import LocalServer
from lakeingest.errors import DecodersDisagree
from lakeingest.state.witness import read_met, store_met
from lakeingest.version import VERSION
from tests.e2e.pipe import Pipe
from tests.faults.decoding import FAULTS, another_value, spoil_chunks

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = ", ".join(f"({number}, {number})" for number in range(9))


def two_tables(pipe: Pipe) -> None:
    """Two tables that no run has seen."""
    for name in ("orders", "items"):
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)", f"INSERT INTO {name} VALUES {ROWS}")


def rows_compared(pipe: Pipe) -> dict[str, int]:
    """How many rows of chunks were compared, by trait."""
    return {
        trait: rows
        for decoder, counts in read_met(pipe.state, VERSION).rows.items()
        if decoder.endswith(", chunks")
        for trait, rows in counts.items()
    }


@pytest.mark.formats
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("two runs", only=("hudi", "a lost row", "a doubled row"))
def test_a_fault_stops_its_table_before_readers_see_it(pipe: Pipe, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other table goes on; without the fault the same chunks are read again, and are exact."""
    two_tables(pipe)
    with monkeypatch.context() as patch:
        spoil_chunks(patch, "orders", FAULTS[fault])
        with pytest.raises(DecodersDisagree, match=f"{pipe.database}.orders: the decoders disagree at "):
            pipe.run()
    assert len(pipe.rows("items")) == 9
    [orders] = [one for one in status(pipe.config) if one.table.name == "orders"]
    assert orders.shown is None
    assert orders.stopped is not None
    assert orders.stopped.error == "DecodersDisagree"
    assert len((pipe.state / "disagreements").listed("*.json")) == 1
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11", "MariaDB 11.8"))
@pytest.mark.long("several runs; another test finds a fault in every run", only=("MySQL",))
def test_a_fault_is_found_on_every_server(any_pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no time limit of a SELECT is a hint."""
    two_tables(any_pipe)
    with monkeypatch.context() as patch:
        spoil_chunks(patch, "orders", another_value)
        with pytest.raises(DecodersDisagree):
            any_pipe.run()
    any_pipe.run()
    any_pipe.assert_equal()


def test_what_is_new_is_compared_and_then_samples(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples find a fault, too."""
    two_tables(pipe)
    pipe.run()
    assert set(rows_compared(pipe).values()) == {18}
    pipe.sql("CREATE TABLE later (id INT PRIMARY KEY, a INT, t TIME)", "INSERT INTO later (id, a) VALUES (1, 2)")
    pipe.run()
    assert sorted(rows_compared(pipe).values()) == [1, 1, 19, 19]  # each type, and its default NULL
    counts = read_met(pipe.state, VERSION).rows
    known = {decoder: dict.fromkeys(traits, FIRST_ROWS) for decoder, traits in counts.items()}
    store_met(pipe.state, Met(VERSION, known))
    pipe.sql("CREATE TABLE known (id INT PRIMARY KEY, a INT)", f"INSERT INTO known VALUES {ROWS}")
    with monkeypatch.context() as patch:
        spoil_chunks(patch, "known", another_value)
        pipe.run()  # nothing is new, and no sample is due
    assert pipe.rows("known")[-1] == (8, -7)
    store_met(pipe.state, Met(VERSION, known, run_seconds=1000.0))
    pipe.sql("CREATE TABLE sampled (id INT PRIMARY KEY, a INT)", f"INSERT INTO sampled VALUES {ROWS}")
    spoil_chunks(monkeypatch, "sampled", another_value)
    with pytest.raises(DecodersDisagree, match="at id=8 in a chunk about column a: -7, and the second one reads 8"):
        pipe.run()


def test_gaps_are_named_by_status(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> None:
    """The other columns of the same rows are compared."""
    pipe = pipe_on(mysql_server_with())
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(2), s VARCHAR(9) CHARACTER SET sjis)")
    pipe.sql("CREATE TABLE k (s VARCHAR(9) CHARACTER SET sjis PRIMARY KEY)")
    pipe.sql(
        "INSERT INTO t VALUES (1, STRING_TO_VECTOR('[1,2]'), 'ア'), (2, NULL, NULL)", "INSERT INTO k VALUES ('ア')"
    )
    pipe.run()
    [note] = [note for note in status(pipe.config).notes if note.startswith("the second decoder")]
    assert " cannot check: charset sjis, in chunks (3 times), type vector, in chunks (2 times); " in note
    pipe.assert_equal()
