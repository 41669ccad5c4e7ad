"""lakeingest as a job runs it; `python -m benchmarks.pipeline HOST PORT USER DATABASE TABLE FOLDER [OPTION…]`.

Copies the table into the folder, or brings it up to date. Options: `follow` the source then; `verify` the copy or ask
for its `status` instead; a JSON document with other keys of pipeline.yml, such as `target` for a copy elsewhere. It
prints a JSON line for every event of the run.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lakeingest import Pipeline
from lakeingest.commands.run import forked_nursery, run
from lakeingest.config import Config, parse_config
from lakeingest.pipeline.events import Event


def document(
    host: str, port: str, user: str, database: str, table: str, place: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A pipeline.yml for one table; `place` has other keys, such as `target` if the copy is not in its folder."""
    return {
        "name": "benchmark",
        "source": {"host": host, "port": int(port), "user": user, "tls": {"mode": "disabled"}},  # as the peers
        "tables": {"include": [f"{database}.{table}"]},
        "target": {"warehouse": "warehouse"},
        "state": "state",
        **(place or {}),
    }


def config(
    host: str, port: str, user: str, database: str, table: str, folder: Path, place: Mapping[str, Any] | None = None
) -> Config:
    """That file's values, for a folder."""
    return parse_config(document(host, port, user, database, table, place), folder, {})


def main() -> None:
    host, port, user, database, table, folder, *options = sys.argv[1:]
    out = sys.stdout  # Spark's JVM gets another one

    def say(event: Event) -> None:
        print(json.dumps({"event": type(event).__name__, "at": time.time(), **asdict(event)}, default=str), file=out)
        out.flush()

    place = next((json.loads(one) for one in options if one.startswith("{")), None)
    settings = config(host, port, user, database, table, Path(folder).absolute(), place)
    if "verify" in options:
        sys.exit(not Pipeline(settings).verify().equal)
    if "status" in options:
        Pipeline(settings).status()
        return
    with forked_nursery(settings) as nursery:  # as the command does
        run(settings, observe=say, follow="follow" in options, nursery=nursery)  # until it is killed


if __name__ == "__main__":
    main()
