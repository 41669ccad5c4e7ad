"""Rivet: `python -m benchmarks.rivet PROGRAM HOST PORT USER DATABASE TABLE FOLDER` copies once into Parquet files."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    program, host, port, user, database, table, folder = sys.argv[1:]
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    environment = {**os.environ, "DATABASE_URL": f"mysql://{user}@{host}:{port}/{database}"}
    about = ["init", "--source-env", "DATABASE_URL", "--table", table, "-o", "rivet.yaml"]
    subprocess.run([program, *about], env=environment, stdout=sys.stderr, check=True)
    print(json.dumps({"event": "ready", "at": time.time()}), flush=True)
    subprocess.run([program, "run", "-c", "rivet.yaml"], env=environment, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main()
