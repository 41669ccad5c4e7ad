"""What each command may import: a library that takes long is imported where it is used, and by nobody else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "boto3",
    "great_expectations",
    "numba",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyparsing",
    "pymysql",
    "pymysqlreplication",
    "pyspark",
    "sqlalchemy",
    "yaml",
}
LAKES = {"boto3", "great_expectations", "opentelemetry", "prometheus_client", "pyiceberg", "pyspark", "sqlalchemy"}
SOURCE = {"pydantic", "pymysql", "yaml"}
LAKE = {"pydantic", "yaml", "pyarrow", "pyiceberg"}
MAY_IMPORT: dict[tuple[str, ...], set[str]] = {
    ("--help",): set(),
    ("--version",): set(),
    ("explain", "SourceAway"): {"pydantic"},  # Typer reads arguments and options of a command with it
    ("run", "--help"): {"pydantic"},
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
import sys
from lakeingest.cli import main
heavy = set(sys.argv.pop(1).split())
try:
    main()
except SystemExit:
    pass
sys.stderr.write("\\n" + " ".join({name.partition(".")[0] for name in sys.modules} & heavy))
"""


@pytest.mark.parametrize("command", MAY_IMPORT, ids=" ".join)
@pytest.mark.long("imports less than a run and more than `status --offline`", only=("status", "check"))
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


HELP = """
import sys
from lakeingest.cli import main
try:
    main()
except SystemExit:
    pass
print(*(name for name in sys.modules if name.startswith("lakeingest.")), file=sys.stderr)
"""


def test_help_imports_few_modules_of_lakeingest() -> None:
    """It does not use what commands do: dataclasses of the core take most of the time of their modules."""
    asked = subprocess.run([sys.executable, "-c", HELP, "--help"], check=True, capture_output=True, text=True)
    ours = asked.stderr.split()
    assert not [name for name in ours if name.startswith(("lakeingest.pipeline", "lakeingest.core.tables"))]
    assert len(ours) <= 20


COLLECT = """
import sys, pytest
sys.modules |= dict.fromkeys(sys.argv[1].split())
marks = "not mysql and not spark"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--collect-only", "-m", marks, *sys.argv[2:]]))
"""


@pytest.mark.long("what `make test-core` shows in its own environment")
def test_the_core_is_tested_without_spark_and_lakes() -> None:
    """`make test-core` has its own small environment, so that a module that imports more fails only there."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    line = next(line for line in makefile.splitlines() if line.startswith("CORE_TESTS = "))
    tests = line.partition("#")[0].split()[2:]
    program = [sys.executable, "-c", COLLECT, " ".join(LAKES), *tests]
    collected = subprocess.run(program, check=False, cwd=ROOT, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout[-2000:]
