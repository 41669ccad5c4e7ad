"""lakeingest as a job runs it; `python -m benchmarks.pipeline HOST PORT USER DATABASE TABLE FOLDER [follow|PLACE]`.

Copies the table into the folder, or to the place that a JSON document names, or brings it up to date, and then follows
the source where that is asked for. It prints a JSON line for every event of the run.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lakeingest.commands.run import run
from lakeingest.config import Config, parse_config
from lakeingest.pipeline.events import Event


def document(
    host: str, port: str, user: str, database: str, table: str, place: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A pipeline.yml for one table and Iceberg; `place` has `target` and `state` where they are not in its folder."""
    return {
        "name": "benchmark",
        "source": {"host": host, "port": int(port), "user": user, "tls": {"mode": "disabled"}},  # as the peers
        "tables": {"include": [f"{database}.{table}"]},
        "target": {"format": "iceberg", "catalog": {"type": "sql"}, "warehouse": "warehouse"},
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

    follow = options == ["follow"]  # until it is killed
    place = json.loads(options[0]) if options and not follow else None
    run(config(host, port, user, database, table, Path(folder).absolute(), place), observe=say, follow=follow)


if __name__ == "__main__":
    main()
