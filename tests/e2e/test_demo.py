"""The demo as its users run it: a process of its own, from nothing to the proof."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.job import until
from tests.servers.catalog_servers import object_store

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 6_000


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start the demo in a folder."""
    command = [sys.executable, "-m", "lakeingest", "demo", "--rows", str(ROWS), "--dir", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def servers(folder: Path) -> list[str]:
    """Command lines of the processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and str(os.getpid()) != process.parent.name and "mysqld" in command:
            found.append(command)
    return found


@pytest.fixture(
    scope="module",
    params=["iceberg", pytest.param("hudi", marks=pytest.mark.long("Hudi's demo takes twice as long as Iceberg's"))],
)
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mysql_server: LocalServer
) -> tuple[Path, str]:
    """A finished demo, its folder and what it said; the shared server has brought MySQL into the cache."""
    folder = tmp_path_factory.mktemp("demo") / "lake"
    process = demo(folder, "--seed", "7", "--target", request.param)
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    return folder, said


@pytest.mark.long("runs the whole demo, as .ci/run does by its command")
def test_the_demo_proves_every_table(played: tuple[Path, str]) -> None:
    """All five tables are equal, changes were made meanwhile, and some of them were dropped by the filter."""
    _, said = played
    equal = re.findall(r"^shop\.(\w+): source = target, [\d,]+ rows, checksum [0-9a-f]{32}$", said, re.MULTILINE)
    assert equal == ["customers", "events", "inventory", "order_items", "orders"]
    [written] = re.findall(r"^written +([\d,]+) row changes", said, re.MULTILINE)
    assert int(written.replace(",", "")) >= 15_000
    [applied, dropped] = re.findall(r"^binlog +([\d,]+) change rows applied, ([\d,]+) dropped", said, re.MULTILINE)[0]
    assert int(applied.replace(",", "")) > 0
    assert int(dropped.replace(",", "")) > 0


@pytest.mark.long("makes a demo; CI makes another one")
def test_the_demo_leaves_its_lake_and_no_server(played: tuple[Path, str]) -> None:
    """Warehouse, state and pipeline.yml stay; the server is gone, and no password is in what stays."""
    folder, _ = played
    assert servers(folder) == []
    assert {"warehouse", "state", "pipeline.yml"} <= {path.name for path in folder.iterdir()}
    assert "${LAKEINGEST_DEMO_PASSWORD}" in (folder / "pipeline.yml").read_text()


@pytest.mark.long("plays the demo, and starts Spark once more")
def test_the_lines_to_query_work(played: tuple[Path, str]) -> None:
    """Each command that the demo prints can be pasted, and counts the published rows."""
    folder, said = played
    commands = dict(re.findall(r"^(PyIceberg|Spark|DuckDB) +(.+)$", said, re.MULTILINE))
    iceberg = (folder / "warehouse" / "catalog.db").exists()
    assert set(commands) == ({"PyIceberg", "Spark", "DuckDB"} if iceberg else {"Spark"})
    [rows] = re.findall(r"^shop\.orders: source = target, ([\d,]+) rows", said, re.MULTILINE)
    for command in commands.values():
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=300)
        assert rows.replace(",", "") in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("moment", ["a shop of", "wave 1"])
@pytest.mark.long("waits for the demo")
def test_ctrl_c_ends_the_demo_and_its_server(tmp_path: Path, mysql_server: LocalServer, moment: str) -> None:
    """While Spark starts and while it works: one line, exit code 130, and nothing keeps running."""
    process = demo(tmp_path / "lake")
    until(process, moment)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("lakeingest: interrupted")
    assert "Traceback" not in said
    wait_until(lambda: not servers(tmp_path))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait up to a minute for something."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("target", ["iceberg", "hudi"])
@pytest.mark.long("a demo with two more servers")
def test_the_demo_proves_tables_in_s3(tmp_path: Path, target: str) -> None:
    """Those of Iceberg with a REST catalog; nothing is in a warehouse of this machine."""
    with object_store(tmp_path / "probe"):  # skips the test if there is no server
        pass
    process = demo(tmp_path / "lake", "--place", "s3", "--target", target)
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert said.count("source = target") == 5
    assert "The tables were in s3://lake/warehouse" in said
    left = {path.name for path in (tmp_path / "lake").iterdir()}
    assert left - {"catalog"} == {".lakeingest-demo", "pipeline.yml", "server", "s3"}
