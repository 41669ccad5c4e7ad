"""What production does to a run: one clear line, the right exit code, nothing lost, and the next run goes on.

Each fault meets a table that is copied and published, with changes waiting. All of them stand in a table at the end
of the test output.
"""

import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from pydantic import SecretStr
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest import exits
from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.config.place import Place
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError
from lakeingest.files import file as files
from lakeingest.pipeline.events import Event, Spooled, WaveCommitted
from tests.e2e import others
from tests.e2e.job import Job, descendants, until
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of
from tests.servers.stores import everything, forget_kept, on_disk

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

Broken = Callable[[Pipe], AbstractContextManager[Config]]
Record = Callable[[str, int, str], None]

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40))"


class Stop(Exception):
    """Ends a run where a crash could."""


def with_source(pipe: Pipe, **keys: object) -> Config:
    """The pipeline's config with other keys of the source."""
    return pipe.config.model_copy(update={"source": pipe.config.source.model_copy(update=keys)})


@contextmanager
def wrong_password(pipe: Pipe) -> Iterator[Config]:
    """The password was changed."""
    yield with_source(pipe, password=SecretStr("wrong"))


@contextmanager
def missing_grant(pipe: Pipe) -> Iterator[Config]:
    """The user may read tables, but not the binlog."""
    user = f"u{pipe.database}"
    pipe.sql(f"CREATE USER {user} IDENTIFIED BY 'secret'", f"GRANT SELECT ON {pipe.database}.* TO {user}")
    yield with_source(pipe, user=user, password=SecretStr("secret"))
    pipe.sql(f"DROP USER {user}")


@contextmanager
def refused_connection(pipe: Pipe) -> Iterator[Config]:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield with_source(pipe, port=port)


@contextmanager
def no_such_table(pipe: Pipe) -> Iterator[Config]:
    """The patterns match nothing."""
    tables = pipe.config.tables.model_copy(update={"include": ("nowhere.*",)})
    yield pipe.config.model_copy(update={"tables": tables})


@contextmanager
def state_is_a_file(pipe: Pipe) -> Iterator[Config]:
    """A file stands where the state folder should be made."""
    file = on_disk(pipe.state).with_name("file")
    file.touch()
    yield pipe.config.model_copy(update={"state": Place.of(file / "state")})


@contextmanager
def warehouse_is_a_file(pipe: Pipe) -> Iterator[Config]:
    """A file stands where the warehouse should be made."""
    file = on_disk(pipe.state).with_name("warehouse")
    file.touch()
    target = pipe.config.target.model_copy(update={"warehouse": Place.of(file / "warehouse")})
    yield pipe.config.model_copy(update={"target": target})


@contextmanager
def catalog_is_no_database(pipe: Pipe) -> Iterator[Config]:
    """Something else stands where the catalog's file was."""
    folder = on_disk(pipe.state).with_name("elsewhere")
    folder.mkdir()
    (folder / "catalog.db").write_text("this is no database, but it is long enough to look like one " * 100)
    target = pipe.config.target.model_copy(update={"warehouse": Place.of(folder)})
    yield pipe.config.model_copy(update={"target": target})


def damaged(name: str, damage: Callable[[bytes], bytes | None], *, interrupted: bool) -> Broken:
    """A file of the spool is damaged; it is back afterwards, as from a backup. Some exist only in mid-run."""

    @contextmanager
    def broken(pipe: Pipe) -> Iterator[Config]:
        def stop(event: Event) -> None:
            if isinstance(event, Spooled):
                raise Stop

        if interrupted:
            with pytest.raises(Stop):
                pipe.run(observe=stop)
        spool = pipe.state / "spool"
        backup = {file: file.read() for file in everything(spool)}
        [file, *_] = sorted(spool.listed(name), key=lambda file: -len(backup[file]))
        left = damage(backup[file])
        file.delete() if left is None else file.write(left)
        forget_kept()
        yield pipe.config
        for file in everything(spool):
            file.delete()
        for file, contents in backup.items():
            file.write(contents)
        forget_kept()

    return broken


def truncate(contents: bytes) -> bytes:
    """What a crash of the machine leaves of a file."""
    return contents[: len(contents) // 2]


@contextmanager
def newer_progress(pipe: Pipe) -> Iterator[Config]:
    """A newer version has worked on the table."""
    newer = json.dumps({"format": 99})
    if pipe.config.target.format == "hudi":
        [last] = on_disk(pipe.state / "staging").glob("*/*.json")
        before = last.read_text()
        last.write_text(json.dumps(json.loads(before) | {"progress": {"format": 99}}))
        yield pipe.config
        last.write_text(before)
        return
    catalog = catalog_of(pipe.config.target)
    table = catalog.load_table(f"{pipe.database}.orders")
    ours = table.metadata.refs["lakeingest"].snapshot_id
    with (
        table.transaction() as transaction,
        transaction.update_snapshot(
            snapshot_properties={"lakeingest.progress": newer}, branch="lakeingest"
        ).fast_append(),
    ):
        pass
    yield pipe.config
    with catalog.load_table(f"{pipe.database}.orders").transaction() as transaction:
        branches = ManageSnapshots(transaction=transaction)
        branches.remove_branch("lakeingest").create_branch(ours, "lakeingest").commit()


@contextmanager
def foreign_row(pipe: Pipe) -> Iterator[Config]:
    """Someone wrote to the table that readers see; it is rolled back."""
    with others.inserted(pipe, "orders", (999, "foreign")):
        yield pipe.config


@contextmanager
def commit_order_off(pipe: Pipe) -> Iterator[Config]:
    """The server no longer commits in binlog order."""
    pipe.sql("SET GLOBAL binlog_order_commits = OFF")
    yield pipe.config
    pipe.sql("SET GLOBAL binlog_order_commits = ON")


MANIFEST, DATA = "segments/*.json", "data/*-1.parquet"  # the one after that of the transactions
FAULTS: dict[str, tuple[Broken, int, str]] = {
    "wrong password": (wrong_password, 3, "refuses user"),
    "missing grant": (missing_grant, 3, "REPLICATION"),
    "source away": (refused_connection, 75, "is away"),
    "no table matches": (no_such_table, 3, "no table of the source matches"),
    "binlog_order_commits off": (commit_order_off, 3, "binlog_order_commits"),
    "state folder cannot be made": (state_is_a_file, 3, "state folder"),
    "spool's beginning truncated": (damaged("opened.json", truncate, interrupted=False), 3, "cannot be read"),
    "spool's beginning empty": (
        damaged("opened.json", lambda _: b"", interrupted=False),
        3,
        "spool",
    ),
    "spool's manifest truncated": (damaged(MANIFEST, truncate, interrupted=True), 3, "cannot be read"),
    "spool's data truncated": (damaged(DATA, truncate, interrupted=True), 3, "spool"),
    "spool's data gone": (damaged(DATA, lambda _: None, interrupted=True), 3, "spool"),
}
LAKE_FAULTS: dict[str, tuple[Broken, int, str]] = {
    "warehouse cannot be made": (warehouse_is_a_file, 3, "warehouse"),
    "progress of a newer version": (newer_progress, 3, "format 99"),
    "someone else wrote to the table": (foreign_row, 3, "someone else wrote"),
}


def but_for_folders(faults: Iterable[str], *of_folders: str) -> list[ParameterSet]:
    """Parameters, of which these need a folder of this machine."""
    local = pytest.mark.local("a file stands in the way of a folder")
    return [pytest.param(fault, marks=[local] * (fault in of_folders), id=fault) for fault in faults]


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Record:
    """Call it with a fault, the exit code and the line that users saw: a row of the table that the session prints."""
    shown = "faults: exit code, and the one line that users see"
    return lambda fault, code, line: record_property(shown, f"{fault:<40} {code:>4}  {line}")


@pytest.fixture
def faulty(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a server that may be set as a fault needs it."""
    return pipe_on(mysql_server_with(server_id="92"), chunk_rows=10)


@pytest.mark.parametrize("fault", but_for_folders(FAULTS, "state folder cannot be made"))
@pytest.mark.long(
    "a variant of an end-to-end case that every run has",
    only=(
        "wrong password",
        "spool's beginning truncated",
        "spool's beginning empty",
        "spool's data truncated",
        "binlog_order_commits off",
        "no table matches",
        "state folder cannot be made",
    ),
)
def test_a_fault_is_one_line_and_the_next_run_goes_on(faulty: Pipe, record: Record, fault: str) -> None:
    """The line names it, readers see what they saw, and without the fault the same command makes it equal."""
    stops_and_goes_on(faulty, record, fault, *FAULTS[fault])


@pytest.mark.long("whole runs")
def test_a_spool_of_another_server_is_filled_anew(faulty: Pipe) -> None:
    """It holds nothing for these tables; the source still has what they need."""
    faulty.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    faulty.run()
    opened = faulty.state / "spool" / "opened.json"
    other = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    opened.put_document(files.document(opened) | {"server_uuid": other})
    faulty.sql("UPDATE orders SET v = 'changed' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    faulty.run()
    faulty.assert_equal()
    assert files.document(opened)["server_uuid"] != other


@pytest.mark.formats
@pytest.mark.parametrize("fault", but_for_folders(LAKE_FAULTS, "warehouse cannot be made"))
@pytest.mark.long("three runs with a publish of Hudi each", only=("hudi",))
def test_a_fault_of_the_lake_is_one_line_as_well(faulty: Pipe, record: Record, fault: str) -> None:
    """In each format."""
    stops_and_goes_on(faulty, record, fault, *LAKE_FAULTS[fault])


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
@pytest.mark.local("a file stands where that of SQLite was")
def test_a_catalog_that_is_no_database_is_one_line(faulty: Pipe, record: Record) -> None:
    """As any fault; Hudi's tables need no catalog."""
    stops_and_goes_on(faulty, record, "catalog is no database", catalog_is_no_database, 3, "catalog.db")


def stops_and_goes_on(pipe: Pipe, record: Record, fault: str, broken: Broken, code: int, said: str) -> None:
    """A run with the fault, and one without."""
    pipe.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    pipe.run()
    seen = pipe.rows("orders")
    pipe.sql("UPDATE orders SET v = 'changed' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    with broken(pipe) as config:
        with pytest.raises(LakeIngestError) as raised:
            run(config, spark=pipe.spark)
        assert [row for row in pipe.rows("orders") if row != (999, "foreign")] == seen
    line = exits.message(raised.value)
    record(fault, exits.exit_code(raised.value), line)
    assert (exits.exit_code(raised.value), said in line, "\n" in line) == (code, True, False), line
    pipe.run()
    pipe.assert_equal()
    assert pipe.rows("orders") == [(1, "changed"), (3, "c")]


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_target_that_is_not_ours_is_left_alone(pipe: Pipe, record: Record) -> None:
    """A table of that name that someone else made is refused, unchanged; under another name the run goes on."""
    pipe.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a')")
    others.make(pipe, "orders", (7, "theirs"))
    with pytest.raises(LakeIngestError) as raised:
        pipe.run()
    record("target is not ours", exits.exit_code(raised.value), exits.message(raised.value))
    assert raised.value.exit_code == 3
    assert "orders exists" in str(raised.value)
    assert pipe.rows("orders") == [(7, "theirs")]
    others.drop(pipe, "orders")
    pipe.run()
    pipe.assert_equal()


def test_a_table_that_was_not_asked_for_is_a_usage_error(pipe: Pipe, record: Record) -> None:
    """A name that the config does not include is named, before anything is made."""
    pipe.sql(ORDERS)
    with pytest.raises(LakeIngestError, match="orderz is not among") as raised:
        pipe.run("orderz")
    record("unknown table", exits.exit_code(raised.value), exits.message(raised.value))
    assert raised.value.exit_code == 2
    assert everything(pipe.state) == []


@pytest.mark.parametrize(
    ("kind", "keys"),
    {
        "empty table": [],
        "one-row table": [5],
        "min = max, at the type's end": [-(2**31)],
        "both ends of the type": [-(2**31), 2**31 - 1],
        "several chunks": list(range(45)),
    }.items(),
)
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("keys1", "keys2", "keys3", "keys4"))
def test_a_table_of_any_size_is_copied(pipe: Pipe, record: Record, kind: str, keys: list[int]) -> None:
    """Published once, equal to the source, and still equal after a change."""
    pipe.sql(ORDERS, *(f"INSERT INTO orders VALUES ({key}, 'v')" for key in keys))
    result = pipe.run()
    assert [(table.rows, table.published) for table in result.tables] == [(len(keys), True)]
    assert result.caught_up
    pipe.assert_equal()
    pipe.sql("DELETE FROM orders", "INSERT INTO orders VALUES (0, 'new')")
    pipe.run()
    pipe.assert_equal()
    record(kind, 0, f"{len(keys)} rows, published, equal, also after a change of all rows")


@pytest.mark.long("a server dies and starts again")
def test_a_server_that_dies_in_mid_run_comes_back(mortal: Mortal, pipe_on: Callable[..., Pipe], record: Record) -> None:
    """Kill -9 of the source while waves are copied: one line; started again, the same command goes on, equal."""
    pipe = pipe_on(mortal.server, chunk_rows=10)
    pipe.sql(ORDERS, f"INSERT INTO orders VALUES {', '.join(f'({i}, {i})' for i in range(300))}")

    def die(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 2:
            pipe.sql("DELETE FROM orders WHERE id % 7 = 0")
            mortal.die()

    with pytest.raises(LakeIngestError) as raised:
        pipe.run(observe=die)
    record("source dies in mid-run", exits.exit_code(raised.value), exits.message(raised.value))
    assert raised.value.exit_code == 75
    pipe.connection = mortal.rise()
    assert len(pipe.seen(WaveCommitted)) == 2
    pipe.run()
    assert sum(event.rows for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)) <= 300
    pipe.assert_equal()


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_format: str) -> Iterator[Job]:
    """A pipeline with a table of many waves, for processes."""
    job = Job(tmp_path / "job", mysql_server, "faults_job", 200, lake_format=lake_format).write()
    values = ", ".join(f"({i}, REPEAT('{i} ', 20))" for i in range(12_000))
    job.sql(
        f"USE {job.database}", "CREATE TABLE items (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO items VALUES {values}"
    )
    yield job
    job.sql(f"DROP DATABASE {job.database}")


@pytest.mark.local("takes rights and room away from folders")
@pytest.mark.long("waits until a lease is void")
def test_processes_that_are_stopped_go_on(job: Job, record: Record) -> None:
    """One pipeline, and one fault after the other: each says one line, and the last run is equal."""
    without_override = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    state = on_disk(job.state)
    state.mkdir()
    state.chmod(0o500)
    outcome = job.start("run", before=without_override)
    stopped("read-only state folder", outcome, 3, "state folder", record)
    state.chmod(0o700)

    def little(size: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    outcome = job.start("run", preexec_fn=little(4_096))
    stopped("no space (RLIMIT_FSIZE) at the start", outcome, 3, "", record)
    for fault, size in (("no space for a data file", 1_000), ("no space for metadata", 6_000)):
        process = job.start("run")
        until(process, ": wave ")
        for pid in descendants(process.pid):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        stopped(f"{fault} in mid-run", process, 3, "", record)
    for name, number, code in (("SIGTERM", signal.SIGTERM, 75), ("Ctrl-C", signal.SIGINT, 130)):
        process = job.start("run")
        until(process, ": wave ")
        process.send_signal(number)
        stopped(f"{name} in mid-run", process, code, "committed", record)
    code, said = job.run()
    assert code == 0, said
    assert job.published("items") == job.source("items")


def stopped(fault: str, process: "subprocess.Popen[str]", code: int, said: str, record: Record) -> None:
    """The process ends with this code, its last line says why, and it is no trace."""
    output, _ = process.communicate(timeout=120)
    lines = output.splitlines()
    record(fault, process.returncode, lines[-1])
    assert process.returncode == code, output[-2000:]
    assert lines[-1].startswith("lakeingest: ")
    assert said in lines[-1]
    assert not [line for line in lines if "Traceback" in line or "Exception" in line], output[-2000:]
