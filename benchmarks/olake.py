"""OLake: `python -m benchmarks.olake PROGRAM HOST PORT USER DATABASE TABLE FOLDER` copies once into Parquet files."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.source import PASSWORD, READER_WITH_PASSWORD

_ENVIRONMENT = {"TELEMETRY_DISABLED": "true"}


def main() -> None:
    program, host, port, _user, database, table, folder = sys.argv[1:]
    place = Path(folder)
    source, destination, streams = (place / f"{name}.json" for name in ("source", "destination", "streams"))
    address = {"hosts": host, "port": int(port), "database": database, "ssl": {"mode": "disable"}}
    source.write_text(json.dumps({**address, "username": READER_WITH_PASSWORD, "password": PASSWORD}))
    destination.write_text(json.dumps({"type": "PARQUET", "writer": {"local_path": str(place / "lake")}}))

    def call(*arguments: str) -> None:
        command = [program, *arguments, "--config", str(source)]
        subprocess.run(command, cwd=place, env={**os.environ, **_ENVIRONMENT}, stdout=sys.stderr, check=True)

    call("discover")  # it writes the streams
    catalog = json.loads(streams.read_text())
    for of_database in catalog["selected_streams"].values():
        of_database[:] = [stream for stream in of_database if stream["stream_name"] == table]
    for stream in catalog["streams"]:
        stream["stream"]["sync_mode"] = "full_refresh"
    streams.write_text(json.dumps(catalog))
    print(json.dumps({"event": "ready", "at": time.time()}), flush=True)
    call("sync", "--catalog", str(streams), "--destination", str(destination))


if __name__ == "__main__":
    main()
