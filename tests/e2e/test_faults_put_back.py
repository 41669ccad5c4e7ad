"""Random DDL bites: each fault that is put back into the product ends in a difference."""

import os
from collections.abc import Callable

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.ddl_histories import Drawn, Writer, play, prepared
from tests.e2e.faults_put_back import FAULTS
from tests.e2e.pipe import Pipe

SEQUENCES, TABLES = int(os.environ.get("LAKEINGEST_FAULTS", "0")), 25

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.skipif(not SEQUENCES, reason="takes hours; set LAKEINGEST_FAULTS=300")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("many tables, until one shows the fault")
@pytest.mark.timeout(3600)
def test_a_fault_that_is_put_back_is_found(
    fault: str, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within so many sequences, of which many share a run."""
    FAULTS[fault].put_back(monkeypatch)
    pipe = prepared(pipe_on(server_of(FAULTS[fault].flavor, binlog_row_metadata="MINIMAL"), chunk_rows=10))
    writer = Writer(pipe)
    try:
        for first in range(0, SEQUENCES, TABLES):
            tables = [Drawn(seed) for seed in range(first, first + TABLES)]
            if play(pipe, writer, tables):
                return
            writer.drop(tables)
    finally:
        writer.close()
    pytest.fail(f"nothing differs in {SEQUENCES} sequences")
