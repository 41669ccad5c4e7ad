"""Random DDL bites: each fault that is put back into the product ends in a difference within 300 sequences."""

import time
from collections.abc import Callable, Iterable, Sequence

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.files.local import Local
from tests.e2e.ddl_copies import in_memory
from tests.e2e.ddl_histories import COMPARED, Drawn, Stage, Table, Told, batches, mood_of
from tests.e2e.faults_put_back import FAULTS
from tests.servers.session_variables import imposed

SEQUENCES, TABLES = 300, 10

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]


def differing(stage: Stage, tables: Sequence[Table], faults: Iterable[str]) -> dict[str, str]:
    """What differs, by the names of tables, where copies with these faults follow them; all, where no copy can."""
    with pytest.MonkeyPatch.context() as patch:
        for fault in faults:
            FAULTS[fault].put_back(patch)
        try:
            return stage.play(tables, COMPARED)
        except Exception as error:  # noqa: BLE001 - a run would end with it
            return {table.name: repr(error) for table in tables}
        finally:
            stage.writer.drop(tables)


def differing_again(stage: Stage, tables: Iterable[Drawn], faults: Iterable[str]) -> dict[str, str]:
    """As `differing`, of new tables with these histories."""
    told = [Told(f"{one.name}x", tuple(map(tuple, one.rounds))) for one in tables]
    return differing(stage, told, faults)


def found_with(stage: Stage, seeds: range, faults: Sequence[str]) -> dict[str, list[str]]:
    """The faults with which tables of these seeds differ, each with the names of such tables.

    All faults are put back at first. The history of a table that differs then is followed again: if it does not differ
    without a fault, each fault with which it differs is found.
    """
    tables = [Drawn(seed) for seed in seeds]
    suspects = differing(stage, tables, faults)
    suspected = [one for one in tables if one.name in suspects]
    sound = differing_again(stage, suspected, ()) if suspected else {}
    assert not sound, f"differs without a fault: {sound}"
    found = {name: [*differing_again(stage, suspected, [name])] for name in (faults if suspected else ())}
    return {name: differ for name, differ in found.items() if differ}


@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
@pytest.mark.long("hundreds of tables, until each fault is found")
@pytest.mark.timeout(0)
def test_each_fault_that_is_put_back_is_found(
    flavor: Flavor, server_of: Callable[..., LocalServer], tmp_path: Local, record_property: Callable[..., None]
) -> None:
    """In memory. A fault may hide others, so the same histories are played until no other fault shows."""
    server, began = server_of(flavor, binlog_row_metadata="MINIMAL"), time.monotonic()
    left = [name for name, fault in FAULTS.items() if fault.flavor == flavor]
    with in_memory(server, tmp_path) as stage:
        for seeds in batches(0, SEQUENCES, TABLES):
            with imposed(server, "default", mood_of(seeds)):
                while left and (found := found_with(stage, seeds, left)):
                    for name, tables in found.items():
                        seconds = time.monotonic() - began
                        told = f"{name}: after {seeds.stop} sequences, {seconds:.0f} s; {', '.join(tables)}"
                        record_property("faults that were put back", told)
                        left.remove(name)
    assert not left, f"nothing differs in {SEQUENCES} sequences: {', '.join(left)}"
