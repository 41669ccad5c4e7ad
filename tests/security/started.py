"""A program: it opens a session with a secret in each key that holds one, works with it, and prints what it sees.

Its argument is a folder with a pipeline.yml. It prints a JSON document: the arguments and the environments of the
processes below it, and what SQL and the pages of Spark say.
"""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from lakeingest.config import load_config
from lakeingest.spark.session import open_session


def below(process: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have started."""
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False).stdout
    for child in map(int, found.split()):
        yield child
        yield from below(child)


def main(folder: Path) -> None:
    """Open the session, let Python work in it, and print what is seen."""
    session = open_session(load_config(folder / "pipeline.yml"))
    assert session.range(10).repartition(3).rdd.map(lambda row: row[0]).sum() == 45  # starts workers
    seen = {}
    for process in below(os.getpid()):
        place = Path(f"/proc/{process}")
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a worker may end meanwhile
            name = (place / "comm").read_text().strip()
            for what, file in (("arguments", "cmdline"), ("environment", "environ")):
                seen[f"{what} of {name}"] = (place / file).read_bytes().decode(errors="replace")
    asked = session.sql("SELECT reflect('java.lang.System', 'getenv', 'SOURCE_PASSWORD') AS v").collect()
    seen["SQL"] = f"{asked[0].v} {session.sql('SET -v').collect()}"
    for page in ("environment/", "jobs/", f"api/v1/applications/{session.sparkContext.applicationId}/environment"):
        with urllib.request.urlopen(f"{session.sparkContext.uiWebUrl}/{page}") as answer:  # noqa: S310 - Spark's own
            seen[page] = answer.read().decode()
    print(json.dumps(seen))  # noqa: T201
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
