"""Random DDL bites: each fault that is put back into the product ends in a difference within 300 sequences."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from tests.e2e.ddl_copies import in_memory
from tests.e2e.ddl_histories import COMPARED, Drawn, Stage, Table, Told, batches, mood_of
from tests.e2e.faults_put_back import FAULTS
from tests.session_variables import imposed

USUAL, TABLES = 300, 10
SEQUENCES = int(os.environ.get("LAKEINGEST_FAULTS", USUAL))  # with more, seldom faults are looked for, too

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


@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
@pytest.mark.long("hundreds of tables, until each fault is found")
@pytest.mark.timeout(0)
def test_each_fault_that_is_put_back_is_found(
    flavor: Flavor, server_of: Callable[..., LocalServer], tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """In memory, by copies with all faults that are not found yet.

    The history of a table that differs then is followed again: if it does not differ without a fault, a fault with
    which it differs is found.
    """
    server, began = server_of(flavor, binlog_row_metadata="MINIMAL"), time.monotonic()
    wanted = {name: fault for name, fault in FAULTS.items() if fault.flavor == flavor}
    left = [name for name, fault in wanted.items() if not fault.is_seldom or SEQUENCES > USUAL]
    with in_memory(server, tmp_path) as stage:
        for seeds in batches(0, SEQUENCES, TABLES):
            tables = [Drawn(seed) for seed in seeds]
            with imposed(server, "default", mood_of(seeds)):
                suspects = differing(stage, tables, left)
                suspected = [one for one in tables if one.name in suspects]
                sound = differing_again(stage, suspected, ()) if suspected else {}
                if sound:  # test_random_ddl fails for it
                    record_property("faults that were put back", f"none: {sound}")
                suspected = [one for one in suspected if f"{one.name}x" not in sound]
                for name in [*left] if suspected else ():
                    if found := differing_again(stage, suspected, [name]):
                        seconds = time.monotonic() - began
                        record_property(
                            "faults that were put back",
                            f"{name}: after {seeds.stop} sequences, {seconds:.0f} s; {', '.join(found)}",
                        )
                        left.remove(name)
            if not left:
                break
    assert not left, f"nothing differs in {SEQUENCES} sequences: {', '.join(left)}"
