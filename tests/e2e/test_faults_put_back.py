"""Random DDL bites: each fault that is put back into the product ends in a difference within 300 sequences."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from tests.e2e.ddl_copies import CopiesInMemory, in_memory
from tests.e2e.ddl_histories import COMPARED, Drawn, Stage, batches, mood_of
from tests.e2e.faults_put_back import FAULTS, Fault
from tests.session_variables import imposed

SEQUENCES, TABLES = int(os.environ.get("LAKEINGEST_FAULTS", "300")), 10
FOUND = "faults that were put back"

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]


class Copier:
    """The product with a fault, and its copies. `found` names the table that shows it."""

    def __init__(self, fault: Fault, stage: Stage) -> None:
        self._fault, self._stage = fault, stage
        self.seconds, self.found = 0.0, ""

    def compare(self, tables: list[Drawn]) -> None:
        """Renew the copies of these tables, which those of the product as it is are equal to."""
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            self._fault.put_back(patch)
            try:
                words = self._stage.compared(tables)
            except Exception as error:  # noqa: BLE001 - a run would end with it
                words = {"all": repr(error)}
        self.found = next((f"{name}: {one}" for name, one in words.items() if one), "")
        self.seconds += time.monotonic() - began


def beside(stage: Stage, folder: Path) -> Stage:
    """The same tables, with copies of their own."""
    assert isinstance(stage.copies, CopiesInMemory)
    return replace(stage, copies=stage.copies.beside(folder))


@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
@pytest.mark.long("hundreds of tables, until each fault is found")
@pytest.mark.timeout(0)
def test_each_fault_that_is_put_back_is_found(
    flavor: Flavor, server_of: Callable[..., LocalServer], tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """In memory: copies with each of the faults, and without one, follow the same statements."""
    server, sound = server_of(flavor, binlog_row_metadata="MINIMAL"), dict[str, str]()
    with in_memory(server, tmp_path / "sound") as stage:
        wanted = [name for name, fault in FAULTS.items() if fault.flavor == flavor]
        left = {name: Copier(FAULTS[name], beside(stage, tmp_path / f"{n}")) for n, name in enumerate(wanted)}
        for seeds in batches(0, SEQUENCES, TABLES):
            tables = [Drawn(seed) for seed in seeds]
            with imposed(server, "default", mood_of(seeds)):
                for _ in range(COMPARED):
                    there = [one for one in tables if one.is_there]
                    stage.writer.write(there)
                    sound |= stage.differences(there)
                    for name, copier in [*left.items()]:
                        copier.compare([one for one in there if one.is_there])
                        if copier.found:
                            of, seconds = copier.found.split(":")[0], copier.seconds
                            record_property(FOUND, f"{name}: after {seeds.stop} sequences, {seconds:.0f} s; {of}")
                            del left[name]
                    stage.writer.drop(one for one in there if not one.is_there)
            stage.writer.drop(tables)
            if not left:
                break
    assert not sound, f"it differs without a fault, too: {sound}"
    assert not left, f"nothing differs in {SEQUENCES} sequences: {', '.join(left)}"
