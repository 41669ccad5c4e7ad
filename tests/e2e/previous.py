"""The previous release's code, as it wrote the states and tables that today's code has to read.

`previous.tar.xz` is the package of one commit, so that a test runs that code itself, on a source that is there: a state
made once would name positions in the binlog of a server that is gone. After a release, keep its code:

    python -m tests.e2e.previous v1.0.0
"""

import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.e2e.job import Job
from tests.servers.accounts import PASSWORD

KEPT = Path(__file__).with_name("previous.tar.xz")


def unpacked(folder: Path) -> Path:
    """A folder with the previous package, to put on PYTHONPATH."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    return folder


def previously(code: Path, job: Job, *arguments: str) -> "subprocess.Popen[str]":
    """Start the previous `lakeingest` in the job's folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "lakeingest", *arguments],
        cwd=job.folder,
        env=os.environ | {"JOB_PASSWORD": PASSWORD, "PYTHONPATH": str(code)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def keep(reference: str) -> None:
    """Replace the kept code by that of a commit."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", reference, "lakeingest"], capture_output=True, check=True
    )
    KEPT.write_bytes(lzma.compress(packed.stdout, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    keep(sys.argv[1])
