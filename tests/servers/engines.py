"""Other engines that read tables of the lake: pinned packages, each in a folder and a process of its own.

They are no packages of our environment: DuckDB's extensions are for one version of it, and ClickHouse takes 500 MB. pip
fetches them once into the cache folder. If it cannot, the tests of that engine are skipped by its name.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.demo import debian

SECONDS = 900
_START = "import json, sys\nasked = json.loads(sys.argv[1])\n"
_DUCKDB = """
import duckdb, importlib.util
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg", *(["httpfs"] if asked["store"] else [])):
    [found] = importlib.util.find_spec(f"duckdb_extension_{name}").submodule_search_locations
    con.execute(f"LOAD '{found}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
if asked["store"]:
    con.execute("CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', ENDPOINT '{host}', REGION '{region}',"
                " URL_STYLE 'path', USE_SSL false)".format(**asked["store"]))
con.execute("SET TimeZone = 'UTC'")
sql = asked.get("sql") or f"SELECT * FROM iceberg_scan('{asked['metadata']}')"
con.execute(f"COPY ({sql}) TO '{asked['out']}' (FORMAT parquet)")
"""
_CLICKHOUSE = """
import chdb
location = asked["location"].removeprefix("file://")
store = asked["store"]
source = f"icebergLocal('{location}')"
if store:
    place = "http://{host}/".format(**store) + location.removeprefix("s3://")
    source = "icebergS3('{0}/', '{key}', '{secret}')".format(place, **store)
out = f"INTO OUTFILE '{asked['out']}' TRUNCATE FORMAT Parquet"
settings = "SETTINGS output_format_parquet_string_as_string = 0, session_timezone = 'UTC'"
chdb.query(f"SELECT * FROM {source} {out} {settings}")
"""
_HUDI = """
import pyarrow, pyarrow.parquet
from hudi import HudiTableBuilder
table = HudiTableBuilder.from_base_uri(asked["location"]).build()
read = getattr(table, "read_snapshot", None) or table.read
pyarrow.parquet.write_table(pyarrow.Table.from_batches(read()), asked["out"])
"""


@dataclass(frozen=True)
class Engine:
    """An engine: its packages, and a program. That of `read` writes all rows of a table to a Parquet file."""

    name: str
    packages: tuple[str, ...]
    program: str

    def read(self, metadata: str, location: str, store: Mapping[str, str] | None = None) -> pa.Table:
        """All rows of a table, given by its newest metadata.json and its folder; skips where pip fails.

        `store` is the S3 that it is in: its host, key, secret and region.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.parquet"
            self.run({"metadata": metadata, "location": location, "store": store, "out": str(out)})
            return pq.read_table(out)

    def query(self, sql: str, out: str) -> list[dict[str, Any]]:
        """The rows of a query of DuckDB, in the order of their first column, by way of the file `out`."""
        self.run({"sql": sql, "store": None, "out": out})
        rows = pq.read_table(out)
        return list(rows.sort_by(rows.column_names[0]).to_pylist())

    def run(self, asked: Mapping[str, Any]) -> str:
        """What the program prints for what it is asked; skips where pip fails."""
        # ours come last: hudi-rs answers with PyArrow
        paths = [str(self.installed()), *(path for path in sys.path if path.endswith("site-packages"))]
        done = subprocess.run(
            [sys.executable, "-c", _START + self.program, json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",  # ClickHouse reads files only below its folder
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{self.name} cannot read {asked}: {done.stderr[-2_000:]}")
        return done.stdout

    def installed(self) -> Path:
        """The folder of the packages, filled by pip where it does not exist yet."""
        with tempfile.TemporaryDirectory() as folder:
            [cache, *_] = debian.caches(Path(folder))
            cache.mkdir(parents=True, exist_ok=True)
            place = cache / "-".join(self.packages).replace("=", "")
            with debian.locked(cache / "engines.lock"):
                if not place.exists():
                    new = Path(tempfile.mkdtemp(dir=cache))
                    done = subprocess.run(
                        [
                            sys.executable,
                            "-m",
                            "pip",
                            "install",
                            "-q",
                            "--no-deps",
                            "--target",
                            str(new),
                            *self.packages,
                        ],
                        capture_output=True,
                        text=True,
                        timeout=SECONDS,
                        check=False,
                    )
                    if done.returncode:
                        pytest.skip(f"{self.name} cannot be installed: {done.stderr[-300:]}")
                    new.rename(place)
        return place


_EXTENSIONS = tuple(f"duckdb-extension-{name}==1.5.5" for name in ("avro", "httpfs", "iceberg"))
DUCKDB = Engine("DuckDB", ("duckdb==1.5.5", *_EXTENSIONS), _DUCKDB)
CLICKHOUSE = Engine("ClickHouse", ("chdb==4.4.0", "chdb-core==26.9.0"), _CLICKHOUSE)
HUDI_RS = Engine("hudi-rs", ("hudi==0.5.0",), _HUDI)
