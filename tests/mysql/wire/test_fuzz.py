import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.plugins.profiles import walks

INPUTS = int(os.environ.get("LAKEINGEST_FUZZ", walks(10_000)))
MORE = 30_000


def fuzz(inputs: int, seed: int) -> "subprocess.CompletedProcess[str]":
    """A process that tries so many inputs: a fault of a kernel ends it, and not these tests."""
    command = [sys.executable, "-m", "tests.mysql.wire.fuzz", str(inputs), str(seed)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inputs", [INPUTS, max(INPUTS, MORE)], ids=["few", "more"])
@pytest.mark.long("more inputs", only=("more",))
def test_no_input_is_read_wrong(inputs: int) -> None:
    """Altered bytes give a named error or well-formed rows; with checksums, always an error. Nothing beyond is touched.

    LAKEINGEST_FUZZ is how many inputs; more than a million are shared by two processes.
    """
    processes = 2 if inputs > 1_000_000 else 1
    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(fuzz, [-(-inputs // processes)] * processes, range(processes)))
    for child in found:
        assert child.returncode == 0, child.stderr[-3000:]
    figures = [json.loads(child.stdout) for child in found]
    print(json.dumps(figures, indent=1))  # noqa: T201 - what a long run was made for
    assert sum(one["inputs"] for one in figures) >= inputs
    taken = {name for one in figures for name, count in one["kinds"].items() if count["taken"]}
    assert {"a row event", "a result row", "a GTID or QUERY event", "an event in a transaction"} <= taken


def test_a_byte_beyond_the_end_is_a_fault() -> None:
    """The page after the bytes ends the process of whoever reads it: this is how an overrun would be seen."""
    program = "from tests.mysql.wire import fuzz; import numpy as np; found = np.empty((2, 9), np.int64);"
    program += "data = fuzz.Guarded(4096).last(bytes(9) + b'p' + bytes(90));"
    for end in (100, 200):  # an event of 112 bytes, and one after it
        program += f"fuzz.frame_bare_events(data, 0, {end}, *found); print({end}, flush=True);"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-11, "100\n")
