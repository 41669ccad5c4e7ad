"""What each command may import: a library that takes long is imported where it is used, and by nobody else."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "boto3",
    "great_expectations",
    "numba",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyiceberg",
    "pymysql",
    "pymysqlreplication",
    "pyspark",
    "sqlalchemy",
    "yaml",
}
SOURCE = {"pymysql", "yaml"}
LAKE = {"yaml", "pyarrow", "pyiceberg"}
MAY_IMPORT: dict[tuple[str, ...], set[str]] = {
    ("--help",): set(),
    ("--version",): set(),
    ("explain", "SourceAway"): set(),
    ("run", "--help"): set(),
    ("init", "made.yml"): SOURCE | {"pyarrow"},
    ("status",): LAKE | SOURCE,
    ("status", "--offline"): LAKE | SOURCE,
    ("check",): LAKE | SOURCE,
    ("run",): LAKE | SOURCE,  # up to the first answer of the source
}
PIPELINE = """
version: 1
name: shop
source: {host: 127.0.0.1, port: 1, user: lake, password: "${NOT_SET:-wrong}"}
tables: {include: [shop.*]}
target: {format: iceberg}
"""
ASK = """
import json, sys
from lakeingest.cli import app
from lakeingest.errors import LakeIngestError
try:
    app(sys.argv[2:], standalone_mode=False)
except (SystemExit, LakeIngestError):
    pass
sys.stderr.write("\\n" + " ".join({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1].split())))
"""


@pytest.mark.parametrize("command", MAY_IMPORT, ids=" ".join)
def test_a_command_imports_only_what_it_uses(command: tuple[str, ...], tmp_path: Path) -> None:
    """So that help comes at once, and a command that asks the lake does not wait for Spark, numba or the gates."""
    (tmp_path / "pipeline.yml").write_text(PIPELINE)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, " ".join(HEAVY), *command],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert set(asked.stderr.splitlines()[-1].split()) <= MAY_IMPORT[command]
