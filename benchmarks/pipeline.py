"""lakeingest as a job runs it; `python -m benchmarks.pipeline HOST PORT USER DATABASE TABLE FOLDER [follow]`.

Copies the table into the folder, or brings it up to date, and then follows the source where that is asked for. It
prints a JSON line for every event of the run.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from lakeingest.commands.run import run
from lakeingest.config import Config, parse_config
from lakeingest.pipeline.events import Event


def config(host: str, port: str, user: str, database: str, table: str, folder: Path) -> Config:
    """A pipeline.yml for one table and Iceberg."""
    doc = {
        "name": "benchmark",
        "source": {"host": host, "port": int(port), "user": user, "tls": {"mode": "disabled"}},  # as the peers
        "tables": {"include": [f"{database}.{table}"]},
        "target": {"format": "iceberg", "catalog": {"type": "sql"}, "warehouse": "warehouse"},
        "state": "state",
    }
    return parse_config(doc, folder, {})


def main() -> None:
    host, port, user, database, table, folder, *options = sys.argv[1:]
    out = sys.stdout  # Spark's JVM gets another one

    def say(event: Event) -> None:
        print(json.dumps({"event": type(event).__name__, "at": time.time(), **asdict(event)}, default=str), file=out)
        out.flush()

    follow = options == ["follow"]  # until it is killed
    run(config(host, port, user, database, table, Path(folder).absolute()), observe=say, follow=follow)


if __name__ == "__main__":
    main()
