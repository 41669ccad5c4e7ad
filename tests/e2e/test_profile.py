"""Where the seconds of a run go."""

import pickle
import time
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.files import file as files
from lakeingest.pipeline.run.profile import JVM, Profile, StageCost
from lakeingest.spark.own_workers import LOG
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe


def spent(profile: Profile) -> dict[str, StageCost]:
    """The costs by stage, as a task sends them."""
    sent = pickle.loads(pickle.dumps(profile))  # noqa: S301 - our own
    return {cost.stage: cost for cost in sent.stages}


def test_a_stage_is_counted_also_where_it_fails() -> None:
    """Its wall seconds, its CPU seconds, how many times it ran."""
    profile = Profile()
    with profile.stage("waits"):
        time.sleep(0.05)

    def work() -> None:
        with profile.stage("works"):
            until = time.process_time() + 0.05
            while time.process_time() < until:
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with profile.stage("waits"):
        pass
    waits, works = spent(profile)["waits"], spent(profile)["works"]
    assert (waits.times, works.times) == (2, 1)
    assert waits.wall >= 0.05 > waits.cpu
    assert works.cpu >= 0.05


def test_what_tasks_took_is_added_up() -> None:
    """Stage by stage, beside what the driver took."""
    driver, task = Profile(), Profile()
    with driver.stage("commit"):
        pass
    with task.stage("read"):
        pass
    for _ in range(2):
        driver.add(task)
    assert {name: cost.times for name, cost in spent(driver).items()} == {"commit": 1, "read": 2}


@pytest.mark.e2e
@pytest.mark.mysql
@pytest.mark.spark
def test_a_run_says_where_its_seconds_went(pipe: Pipe) -> None:
    """The stages of a first copy, then those of a merge; the JVM's are there as well."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    result = pipe.run()
    first = {cost.stage: cost for cost in result.profile}
    assert result.bill is not None
    assert 0 < (result.bill.cpu_seconds or 0) < 60
    assert str(result.bill) == result.notes[-1]
    assert {"chunks: read", "chunks: look", "chunks: write", "waves: commit", "gates", "publishes", JVM} <= first.keys()
    assert all(cost.times > 0 and cost.wall >= 0 and cost.cpu >= 0 for cost in first.values())
    pipe.sql("INSERT INTO t VALUES (3)", "DELETE FROM t WHERE id = 1")
    second = {cost.stage for cost in pipe.run().profile}
    merge = {f"merges: {step}" for step in ("collapse", "replace", "take", "look", "write", "commit")}
    assert {"binlog: decode", "binlog: write", *merge} <= second


@pytest.mark.e2e
@pytest.mark.mysql
@pytest.mark.long("several processes")
def test_a_run_on_one_machine_starts_no_spark(mysql_server: LocalServer, tmp_path: Path) -> None:
    """The run itself copies small tables and merges a few changes. For more work it starts its own workers, no JVM."""
    job = Job(tmp_path / "job", mysql_server, "profile_job").write()
    table = f"{job.database}.t"

    bills = []

    def stages() -> set[str]:
        code, lines = job.run()
        assert code == 0, lines
        last = files.document(job.state / "last_run.json")
        bills.append(last["bill"])
        return {cost["stage"] for cost in last["profile"]}

    job.sql("FLUSH BINARY LOGS")  # a first run reads the current file from its start, with the changes of other tests
    job.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(1000))")
    job.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert JVM not in stages()
    job.sql(f"UPDATE {table} SET v = 'd' WHERE id < 3", f"DELETE FROM {table} WHERE id = 3")
    job.sql("FLUSH BINARY LOGS", f"INSERT INTO {table} VALUES (4, 'e')")
    assert JVM not in stages()
    assert job.published("t") == job.source("t")
    assert not (job.state / LOG).exists()
    job.sql(
        "SET cte_max_recursion_depth = 20000",
        f"INSERT INTO {table} WITH RECURSIVE n AS (SELECT 10 id UNION ALL SELECT id + 1 FROM n WHERE id < 20000)"
        " SELECT id, REPEAT('x', 1000) FROM n",
    )
    assert JVM not in stages()
    assert (job.state / LOG).exists()
    assert job.published("t") == job.source("t")
    assert all(0 < bill["cpu_seconds"] < 60 and 0 < bill["dollars"]["EMR Serverless"] < 0.01 for bill in bills)
