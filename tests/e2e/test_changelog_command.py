"""`lakeingest changelog` as a process: beside a run, to its end and with `--follow`."""

import json
import signal
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e import replay
from tests.e2e.job import Job, until

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.long("six processes, of which three start Spark's workers or the libraries of the lake")
def test_lines_are_printed_as_changes_come_until_sigterm(tmp_path: Path, mysql_server: LocalServer) -> None:
    """Without a password of the source; what is no longer held ends with 3 and names its runbook."""
    job = Job(tmp_path / "job", mysql_server, "changelog_job").write()
    table = f"{job.database}.t"
    job.sql(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))", f"INSERT INTO {table} VALUES (1, 'a'), (2, 'ä')"
    )
    assert job.run()[0] == 0
    following = job.start("run", "--follow")
    until(following, "caught up with the source")
    reader = job.start("changelog", table, "--follow")
    assert reader.stdout is not None
    got = [reader.stdout.readline() for _ in range(2)]
    job.sql(f"UPDATE {table} SET v = 'b' WHERE id = 1", f"DELETE FROM {table} WHERE id = 2")
    got += [reader.stdout.readline() for _ in range(3)]
    assert [json.loads(line)["op"] for line in got] == ["+I", "+I", "-U", "+U", "-D"]
    assert replay.flink(got, ("id",)) == {(1,): {"id": 1, "v": "b"}}
    for process in (reader, following):
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    position = json.loads(got[1])["position"]  # of the last row of the copy
    ended = job.start("changelog", table, "--since", position, "--format", "debezium-json")
    said, _ = ended.communicate(timeout=60)
    assert [json.loads(line)["payload"]["op"] for line in said.splitlines()] == ["u", "d"]
    job.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    forgetting = job.start("run", "--set", "changelog.keep=0s")
    said, _ = forgetting.communicate(timeout=120)
    assert forgetting.returncode == 0, said
    late = job.start("changelog", table, "--since", position)
    said, _ = late.communicate(timeout=60)
    assert late.returncode == 3
    assert said.startswith(f"lakeingest: {table}: the changes after {position} are no longer held")
    assert said.endswith("into an empty table (runbook: ChangelogGone)\n")
    job.sql(f"DROP DATABASE {job.database}")
