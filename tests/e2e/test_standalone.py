"""Whole runs on a cluster whose executors are other OS users: they share S3, the catalog and the source, no file.

LAKEINGEST_CLUSTER_KILLS sets the number of rounds, in each of which an executor or the driver is killed twice.
"""

import os
import random
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job, until
from tests.servers.catalog_servers import hudi_on_s3, rest_on_s3
from tests.servers.standalone import Cluster, standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.mysql,
    pytest.mark.local("it has a lake and a cluster of its own"),
    pytest.mark.long("starts a Spark cluster, and runs on it"),
]

KILLS = int(os.environ.get("LAKEINGEST_CLUSTER_KILLS", "1"))
ROWS, CHUNK_ROWS = 12_000, 300
ENOUGH = 50  # changes of all rows that a merge gives to executors, and does not do by itself
SECONDS = 6.0  # within which a run is killed, from its first sign of work; Spark starts in these


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A master and two workers."""
    with standalone_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """By format: a REST catalog and S3, or S3 alone."""
    iceberg, hudi = (tmp_path_factory.mktemp(name) for name in ("iceberg", "hudi"))
    with rest_on_s3(iceberg) as of_iceberg, hudi_on_s3(hudi) as of_hudi:
        yield {"iceberg": of_iceberg, "hudi": of_hudi}


@pytest.fixture
def job_in(
    tmp_path: Path, cluster: Cluster, targets: Mapping[str, Any], mysql_server: LocalServer
) -> Iterator[Callable[..., Job]]:
    """Call it with a name: a pipeline on the cluster, and a table of many waves. Its folder is the driver's alone."""
    with ExitStack() as stack:

        def make(name: str, lake: str = "iceberg", **conf: str) -> Job:
            database = f"cluster_{name}_{uuid.uuid4().hex[:6]}"
            stored, settings = f"s3://lake/state/{database}", {**cluster.conf, **conf}
            own = {"lake_format": lake, "target": targets[lake], "stored": stored, "conf": settings}
            job = Job(tmp_path / name, mysql_server, database, CHUNK_ROWS, **own)
            job.write().folder.chmod(0o700)
            rows = ", ".join(f"({i}, 'v{i}')" for i in range(ROWS))
            table = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))"
            job.sql(f"USE {database}", table, f"INSERT INTO t VALUES {rows}")
            stack.callback(job.sql, f"DROP DATABASE {database}")
            return job

        yield make


def done(job: Job, *arguments: str) -> str:
    """What a command has printed, which ended with 0."""
    process = job.start(*arguments)
    output, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, output[-3000:]
    return output


def change(job: Job, chance: random.Random) -> None:
    """Changes of many rows."""
    first, step = chance.randint(1, ROWS), chance.randint(2, 9)
    job.sql(
        f"USE {job.database}",
        f"UPDATE t SET v = CONCAT('u', {first}, '-', id) WHERE id % {step} = 0",
        f"DELETE FROM t WHERE id BETWEEN {first} AND {first + 50}",
        f"INSERT IGNORE INTO t VALUES ({first}, 'new'), ({ROWS + first}, 'more')",
    )


@pytest.mark.parametrize("lake", ["iceberg", "hudi"])
def test_a_table_is_copied_kept_equal_and_repaired_by_other_users(job_in: Callable[..., Job], lake: str) -> None:
    """Bootstrap, catch-up, verify and re-snapshot, from a folder that only the driver may enter."""
    job = job_in("whole", lake)
    done(job, "run")
    assert job.published("t") == job.source("t")
    change(job, random.Random(1))
    done(job, "run")
    assert job.published("t") == job.source("t")
    done(job, "verify")
    job.unlogged(f"UPDATE {job.database}.t SET v = 'lost' WHERE id % 100 = 1")
    done(job, "resnapshot", f"{job.database}.t")
    assert job.published("t") == job.source("t")
    done(job, "verify")
    own = {"spark-warehouse"} if lake == "hudi" else set()  # of Spark's own catalog, which Hudi's statement needs
    assert {file.name for file in job.folder.iterdir()} - own == {"pipeline.yml"}


@pytest.mark.parametrize("lake", ["iceberg", "hudi"])
@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_what_is_killed_is_read_again(
    job_in: Callable[..., Job],
    cluster: Cluster,
    record_property: Callable[[str, object], None],
    victim: str,
    lake: str,
) -> None:
    """In mid-wave and in mid-merge. Without an executor the run goes on, without its driver the next run does."""
    chance = random.Random(victim)
    for number in range(KILLS):
        job = job_in(f"{victim}{number}", lake)
        for phase, sign in (("wave", ": wave "), ("merge", "binlog: ")):
            while cluster.executors():  # of the run before
                time.sleep(0.05)
            process = job.start("run")
            if victim == "driver":
                until(process, sign)
                time.sleep(chance.random() * SECONDS)
                killed = process.poll() is None
                process.kill()
                process.communicate(timeout=60)
                done(job, "run")
            else:
                killed = kill_one_at_work(cluster, process, chance)
                output, _ = process.communicate(timeout=1200)
                assert process.returncode == 0, output[-3000:]
                assert killed
            assert job.published("t") == job.source("t")
            ended = f"the {victim} was killed" if killed else "the run had ended"
            record_property("kills on a cluster, equal after each", f"{lake}, round {number}, {phase}: {ended}")
            change(job, chance)
            job.sql(f"USE {job.database}", *(f"UPDATE t SET v = CONCAT(id, '-{n}')" for n in range(ENOUGH)))
            change(job, chance)
        done(job, "run")
        assert job.published("t") == job.source("t")


def kill_one_at_work(cluster: Cluster, process: "subprocess.Popen[str]", chance: random.Random) -> bool:
    """Kill an executor some time after the first one has started; False if the run ended before that."""
    while process.poll() is None and not cluster.executors():
        time.sleep(0.05)
    time.sleep(chance.random() * SECONDS / 2)
    return process.poll() is None and cluster.kill_executor(chance)


def test_a_slow_task_is_begun_again_elsewhere(job_in: Callable[..., Job], cluster: Cluster) -> None:
    """With speculation several attempts of one task write files; one of them counts."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.01",
    }
    job = job_in(
        "slow", **speculation, **{"spark.speculation.interval": "20ms", "spark.speculation.minTaskRuntime": "0ms"}
    )
    for _ in range(2):
        done(job, "run")
        assert job.published("t") == job.source("t")
        change(job, random.Random(5))
    done(job, "run")
    done(job, "verify")


def test_a_python_without_our_packages_is_named_in_one_line(job_in: Callable[..., Job], cluster: Cluster) -> None:
    """Executors that lack lakeingest, or have another one: exit code 3, and what they need."""
    elsewhere = cluster.shared / "nothing"
    elsewhere.mkdir(exist_ok=True)
    for paths, reason in (
        (f"{elsewhere}", "No module named"),
        (f"{cluster.shared}/dependencies:{older(cluster)}", "other sources"),
    ):
        job = job_in(f"lacks{len(reason)}", **{"spark.executorEnv.PYTHONPATH": paths})
        code, lines = job.run()
        assert code == 3, lines
        assert reason in lines[-1]
        assert "spark.pyspark.python" in lines[-1]
        assert "Traceback" not in " ".join(lines)


def older(cluster: Cluster) -> Path:
    """A folder with another lakeingest."""
    folder = cluster.shared / "older"
    if not folder.exists():
        shutil.copytree(cluster.shared / "job" / "lakeingest", folder / "lakeingest")
        (folder / "lakeingest" / "older.py").write_text("")
    return folder
