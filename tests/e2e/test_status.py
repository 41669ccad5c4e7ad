"""`status` when something is wrong: it says what it can, and what is wrong."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, SourceAway
from lakeingest.files import file as files
from tests.e2e import others
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(pipe: Pipe) -> Pipe:
    """Two tables that are copied."""
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO a VALUES (1, 1)", "INSERT INTO b VALUES (1), (2)")
    pipe.run()
    return pipe


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_without_the_source_the_lake_is_asked(pair: Pipe) -> None:
    """Rows and positions as ever, no lag; why the source is silent is in the result, and nothing else is shown."""
    others.make(pair, "c", (7, "theirs")) if pair.config.target.format == "hudi" else None
    before = {one.table: (one.state, one.rows, one.position) for one in status(pair.config)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    source = pair.config.source.model_copy(update={"port": port})
    found = status(pair.config.model_copy(update={"source": source}))
    assert {one.table: (one.state, one.rows, one.position) for one in found} == before
    assert {(one.lag_bytes, one.in_source) for one in found} == {(None, None)}
    assert isinstance(found.source_error, SourceAway)
    assert "only the lake was read; lag and new tables are unknown: the source 127.0.0.1" in found.note
    offline = status(pair.config.model_copy(update={"source": source}), offline=True)
    assert offline == found
    assert (offline.source_error, offline.note) == (None, "")
    nothing = pair.config.tables.model_copy(update={"include": ("nowhere.*",)})
    with pytest.raises(SourceAway):
        status(pair.config.model_copy(update={"source": source, "tables": nothing}))


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_copy_whose_source_table_was_dropped_is_named(pair: Pipe) -> None:
    """Its copy stays, with the position that it has."""
    pair.sql("DROP TABLE b")
    found = status(pair.config)
    assert [(one.table.name, one.state, one.rows, one.in_source) for one in found] == [
        ("a", "published", 1, True),
        ("b", "published", 2, False),
    ]
    assert f"{pair.database}.b: the source no longer has it" in found.note
    assert "published, gone from the source" in repr(found)


@pytest.mark.long("several processes, one of which waits for the source")
def test_the_command_ends_with_the_error_of_the_source(
    mysql_server: LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After it has said what the lake knows; the last run is named if it failed, and a closed pipe is no bug."""
    job = Job(tmp_path_factory.mktemp("status"), mysql_server, "status_job").write()
    try:
        job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY)", f"INSERT INTO {job.database}.t VALUES (1)")
        assert job.run()[0] == 0
        away = ("--set", "source.port=1")
        code, output = said(job, "run", *away)
        assert code == 75
        code, output = said(job, "status", *away)
        assert code == 75
        assert f"{job.database}.t" in output
        assert output.splitlines()[-1].endswith("(runbook: SourceAway)")
        assert "the last run, with --set source.port, failed at " in output
        assert files.document(job.state / "last_run.json")["exit"] == 75
        for command in ("check", "plan", "status", "run", "verify"):
            before = ("bash", "-c", '"$@" | head -c 0; exit ${PIPESTATUS[0]}', "-")
            process = job.start(command, before=before)
            output, _ = process.communicate(timeout=200)
            assert (process.returncode, "internal error" in output, "Traceback" in output) == (141, False, False), (
                output
            )
    finally:
        job.sql(f"DROP DATABASE {job.database}")


def said(job: Job, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and all that it prints."""
    process = job.start(*arguments)
    output, _ = process.communicate(timeout=200)
    return process.returncode, output


@pytest.mark.long("waits for the time of the source")
def test_status_and_check_warn_before_the_source_drops_what_the_next_run_needs(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """As text and as JSON; of what is spooled nothing is needed any more."""
    pipe = pipe_on(mysql_server_with(server_id="94"))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    calm = status(pipe.config)
    assert (calm[0].binlog_seconds or 0) > 86_400
    assert "the source has the binlog that the next run needs for " in calm.note
    pipe.sql("SET GLOBAL binlog_expire_logs_seconds = 8")
    try:
        pipe.sql("INSERT INTO t VALUES (2)", "SET GLOBAL binlog_expire_logs_auto_purge = OFF", "FLUSH BINARY LOGS")
        pipe.sql("SET GLOBAL binlog_expire_logs_auto_purge = ON")
        time.sleep(6)
        late = status(pipe.config)
        assert 0 <= (late[0].binlog_seconds or 0) < 4
        assert "the binlog that the next run needs will be deleted in" in late.note
        warnings = check(pipe.config, pipe.spark).warnings
        [warning] = [one for one in warnings if one.name == "binlog that the next run needs"]
        assert "run before that, or raise the retention" in (warning.finding or "")
        pipe.run()
        assert (status(pipe.config)[0].binlog_seconds or 0) > 4
    finally:
        pipe.sql("SET GLOBAL binlog_expire_logs_seconds = DEFAULT")


@pytest.mark.long("whole runs")
def test_status_and_check_say_that_the_binlog_is_gone(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """It is a problem and no warning: the next run cannot go on."""
    pipe = pipe_on(mysql_server_with(server_id="94"))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.run()
    assert check(pipe.config, pipe.spark).ok
    pipe.sql("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS")
    pipe.purge()
    [found] = gone = status(pipe.config)
    assert found.binlog_gone
    assert "published, binlog gone" in str(gone)
    assert f"needs of {pipe.database}.t: changes are lost" in gone.note
    problems = {problem.name: problem.finding for problem in check(pipe.config, pipe.spark).problems}
    assert "BinlogGone" in (problems["binlog that the next run needs"] or "")


@pytest.mark.long("whole runs")
@pytest.mark.any_format
def test_status_says_what_readers_see_of_a_table_whose_gate_failed(pipe: Pipe, tmp_path: Path) -> None:
    """The rows behind it are staged; the lag is that of what readers see."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / f"{pipe.database}.t.yml").write_text(
        "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: v, max_value: 100}}]"
    )
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(tmp_path / "suites"))})
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    pipe.run()
    [before] = status(pipe.config)
    assert before.shown is not None
    assert (before.state, before.staged, before.shown.position) == ("published", None, before.position)
    assert None not in {before.shown.published_at, before.shown.source_time}
    pipe.sql("INSERT INTO t VALUES (2, 200)")
    with pytest.raises(GateFailed):
        pipe.run()
    [after] = found = status(pipe.config)
    assert (after.state, after.rows, after.shown) == ("published", 1, before.shown)
    assert after.staged is not None
    assert (after.lag_bytes or 0) > 0
    assert (after.last_gate, (after.gate or {})["success"]) == ("failed", False)
    assert f"{pipe.database}.t: rows as of {after.staged.at} are staged, and no reader sees them yet" in found.note
