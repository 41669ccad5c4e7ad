"""ingestr: `python -m benchmarks.ingestr PROGRAM HOST PORT USER DATABASE TABLE FOLDER` copies once into Iceberg."""

import os
import sys

_ENVIRONMENT = {"INGESTR_DISABLE_TELEMETRY": "true"}
_OPTIONS = ("--incremental-strategy", "replace", "--progress", "log", "--yes")


def main() -> None:
    program, host, port, user, database, table, folder = sys.argv[1:]
    source = ["--source-uri", f"mysql://{user}@{host}:{port}/{database}", "--source-table", table]
    destination = ["--dest-uri", f"iceberg+hadoop://{folder}/warehouse", "--dest-table", f"{database}.{table}"]
    command = [program, "ingest", *source, *destination, *_OPTIONS]
    os.execve(program, command, {**os.environ, **_ENVIRONMENT})  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
