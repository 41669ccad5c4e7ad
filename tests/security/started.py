"""A program: it opens a session with a secret in each key that holds one, works with it, and prints what it sees.

Its argument is a folder with a pipeline.yml. It prints a JSON document: the arguments and the environments of the
processes below it, what SQL and the pages of Spark say, and what its port for blocks answers a stranger.
"""

import contextlib
import json
import os
import socket
import struct
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


def block(port: int, name: str) -> str:
    """What whoever connects to Spark's port for blocks gets of a block; nothing if it is refused.

    Spark's `MessageEncoder` and `OpenBlocks`: a request 3 is answered by 4 with a stream, whose first chunk request 0
    asks for.
    """
    words = [struct.pack(">I", len(word)) + word.encode() for word in ("any", "any", name)]
    asked = b"\0" + words[0] + words[1] + struct.pack(">I", 1) + words[2]
    with socket.create_connection(("127.0.0.1", port), 30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">QBQI", 21 + len(asked), 3, 1, len(asked)) + asked)
        head = answers.read(22)
        if len(head) < 22 or head[8] != 4:
            return ""
        [stream, _chunks] = struct.unpack(">QI", answers.read(12))
        connection.sendall(struct.pack(">QBQI", 21, 0, stream, 0))
        return answers.read(struct.unpack(">Q", answers.read(8))[0] - 8).decode(errors="replace")


def main(folder: Path) -> None:
    """Open the session, let Python work in it with a secret, and print what is seen."""
    config = load_config(folder / "pipeline.yml")
    session = open_session(config)
    secret = config.source.password.get_secret_value()
    rows = session.range(10).repartition(3).rdd.map(lambda row: row[0] if secret else None)
    assert rows.sum() == 45  # starts workers
    environment = session._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr] # noqa: SLF001
    port = environment.blockManager().blockManagerId().port()
    seen = {"blocks of tasks": "".join(block(port, f"broadcast_{number}_piece0") for number in range(4))}
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
