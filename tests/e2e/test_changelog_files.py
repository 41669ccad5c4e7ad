"""`changelog --to`: the changelog as Parquet files in a folder or a bucket, each row once, whoever dies."""

import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakeingest.commands.changelog_files import Limits, write_files
from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.core.companions.log_columns import DDL_JSON
from lakeingest.core.tables.change import COMMITTED_AT, GTID, OP, POSITION
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ChangelogGone, Retryable, StateUnreadable, UsageError
from lakeingest.files.file import File, at, document
from lakeingest.files.local import Local
from tests.e2e import replay
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.e2e.signalled import soon
from tests.e2e.test_changelog import change, keeping, lines
from tests.e2e.test_kills import ROWS, TABLE, written_to
from tests.servers.google import BUCKET
from tests.servers.stores import gcs_storage, killed_at, storage_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "3"))
ORIGIN = (OP, POSITION, COMMITTED_AT, GTID, DDL_JSON)
SMALL = Limits(rows=10)


def write(pipe: Pipe, to: object, table: str = "t", limits: Limits = SMALL, **options: Any) -> list[str]:
    """One call of the command that ends at the end of the spool; the names of the files that it says."""
    said: list[File] = []
    write_files(pipe.config, f"{pipe.database}.{table}", str(to), said.append, limits=limits, **options)
    return [file.name for file in said]


def folder_of(pipe: Pipe, to: object, table: str = "t") -> File:
    """The folder of a table in `to`."""
    return at(Place.of(str(to)), pipe.config.target.storage) / f"{pipe.database}.{table}"


def rows_in(folder: File) -> list[dict[str, Any]]:
    """The rows of all files, in the order of their names, as a reader gets them that knows nothing else."""
    rows = []
    for file in folder.listed("*.parquet"):
        with pq.ParquetFile(file.source()) as opened:
            rows += opened.read().to_pylist()
    return rows


def docs_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the lines of changelog-json say of rows: kind, position, values; the line itself of DDL."""
    docs = []
    for row in rows:
        if row[DDL_JSON] is not None:
            docs.append(json.loads(row[DDL_JSON], parse_float=Decimal))
            continue
        data = {name: value for name, value in row.items() if name not in ORIGIN}
        committed_at = row[COMMITTED_AT] and row[COMMITTED_AT].isoformat(timespec="microseconds").replace("+00:00", "Z")
        docs.append(
            {"op": row[OP], "data": data, "position": row[POSITION], "committed_at": committed_at, "gtid": row[GTID]}
        )
    return docs


def printed(pipe: Pipe, table: str = "t") -> list[dict[str, Any]]:
    """The lines of the whole changelog."""
    return [json.loads(line, parse_float=Decimal) for line in lines(pipe, table)]


@pytest.fixture
def copied(any_pipe: Pipe) -> Pipe:
    """A table of 25 rows that is published, on each server."""
    keeping(any_pipe, 7 * 86_400)
    any_pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(25))}",
    )
    any_pipe.run()
    return any_pipe


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_files_have_the_rows_of_the_changelog_in_order(copied: Pipe, tmp_path: Path) -> None:
    """A second call goes on behind the first one; with DDL come the new columns, in a new file."""
    to = tmp_path / "files"
    first = write(copied, to)
    assert len(first) >= 2  # batches of rows are not cut
    change(copied)
    copied.sql("ALTER TABLE t ADD n DECIMAL(6,2) DEFAULT 0.50, RENAME COLUMN v TO w", "UPDATE t SET n = 1 WHERE id = 1")
    copied.sql("TRUNCATE t", "INSERT INTO t VALUES (1, 'x', 2)")
    copied.run()
    second = write(copied, to)
    assert write(copied, to) == []
    folder = folder_of(copied, to)
    assert [file.name for file in folder.listed("*.parquet")] == [*first, *second]
    rows = rows_in(folder)
    expected = printed(copied)
    assert docs_of(rows) == [doc | {"data": doc["data"]} for doc in expected]
    assert replay.flink(lines(copied), ("id",)) == {(1,): {"id": 1, "w": "x", "n": Decimal("2.00")}}
    metadata = [pq.read_metadata(file.source()).metadata for file in folder.listed("*.parquet")]
    assert [one[b"lakeingest.after"] for one in metadata[len(first) :]] == [
        one[b"lakeingest.until"] for one in metadata[len(first) - 1 : -1]
    ]
    assert {one[b"lakeingest.key"] for one in metadata} == {b'["id"]'}


@pytest.mark.any_format
@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_file_ends_with_a_transaction_and_has_about_the_rows_that_are_wanted(copied: Pipe, tmp_path: Path) -> None:
    """Only a transaction with more rows than a file is cut, and not between the two rows of an update."""
    write(copied, tmp_path)
    for first in (100, 200, 300):
        copied.sql(f"INSERT INTO t VALUES {', '.join(f'({first + n}, NULL)' for n in range(4))}")
    copied.sql("UPDATE t SET v = 'all'")
    copied.run()
    names = write(copied, tmp_path, limits=Limits(rows=9))
    files = {file.name: file for file in folder_of(copied, tmp_path).listed("*.parquet")}
    kinds = [pq.read_table(files[name].source())[OP].to_pylist() for name in names]
    assert kinds == [["+I"] * 12, ["-U", "+U"] * 37]


@pytest.mark.any_format
@pytest.mark.long("several runs; tests/commands/test_changelog_files removes files in every run")
def test_progress_holds_without_changes_and_after_readers_have_removed_files(copied: Pipe, tmp_path: Path) -> None:
    """A table without changes goes on from the end of the spool; without the last file nothing goes on."""
    write(copied, tmp_path)
    folder = folder_of(copied, tmp_path)
    copied.sql("CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    copied.run()
    assert write(copied, tmp_path) == []
    assert document(folder / "_progress.json")["last_file"] == folder.listed("*.parquet")[-1].name
    *files, last = folder.listed("*.parquet")
    for file in files:
        file.delete()
    rows = len(rows_in(folder))
    copied.sql("INSERT INTO t VALUES (77, 'new')")
    copied.run()
    write(copied, tmp_path)
    assert [row["id"] for row in rows_in(folder)[rows:]] == [77]
    (folder / "_progress.json").delete()
    assert write(copied, tmp_path) == []
    last.delete()  # a newer one is there
    assert write(copied, tmp_path) == []
    folder.listed("*.parquet")[-1].delete()
    with pytest.raises(StateUnreadable, match="is gone, and the last file says where to go on"):
        write(copied, tmp_path)


def written_once(pipe: Pipe, to: Path) -> File:
    """The folder of a table of one row, into which the command has written that row."""
    keeping(pipe, 7 * 86_400)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    pipe.run()
    write(pipe, to)
    return folder_of(pipe, to)


def test_what_cannot_go_on_is_refused_by_name(pipe: Pipe, tmp_path: Path) -> None:
    """`--since` beside files, files of others, damage, another writer, and changes that are gone."""
    folder = written_once(pipe, tmp_path)
    with pytest.raises(UsageError, match="leave --since out"):
        write(pipe, tmp_path, since="2h")
    with pytest.raises(UsageError, match="begins with gs://, s3://, s3a://"):
        write(pipe, "ftp://files/x")
    (folder / "mine.parquet").write(b"x")
    with pytest.raises(UsageError, match=r"mine\.parquet is no file of a changelog"):
        write(pipe, tmp_path)
    (folder / "mine.parquet").delete()
    (folder / "_progress.json").put(b"[")
    with pytest.raises(StateUnreadable, match=r"_progress\.json cannot be read"):
        write(pipe, tmp_path)
    (folder / "_progress.json").delete()
    pipe.sql("UPDATE t SET v = 2")
    pipe.run()
    position = printed(pipe)[-2]["position"]
    (folder / f"{position}.parquet").put(b"another's")
    with pytest.raises(StateUnreadable, match="begin in another folder"):
        write(pipe, tmp_path)
    (folder / f"{position}.parquet").delete()
    keeping(pipe, 0)
    pipe.sql("UPDATE t SET v = 3")
    pipe.run()
    with pytest.raises(ChangelogGone):
        write(pipe, tmp_path)


def test_of_two_writers_the_second_one_ends(pipe: Pipe, tmp_path: Path) -> None:
    """It has read on from the same file, and finds another file in the place of its own."""
    folder = written_once(pipe, tmp_path)
    pipe.sql("UPDATE t SET v = 2", "UPDATE t SET v = 3")
    pipe.run()
    asked: list[int] = []

    def other_writes() -> bool:
        """The first time that the slow writer is asked whether to stop, after it has taken its rows, another writes."""
        if not asked:
            asked.append(1)
            pipe.sql("UPDATE t SET v = 4")
            pipe.run()
            write(pipe, tmp_path)
        return False

    with pytest.raises(Retryable, match="another process writes the changelog"):
        write(pipe, tmp_path, limits=Limits(rows=1000), stopping=other_writes)
    assert docs_of(rows_in(folder)) == printed(pipe)


@pytest.mark.local
@pytest.mark.long("four streams of Spark; other tests have each step")
def test_a_stream_of_spark_gets_each_row_once(pipe: Pipe, tmp_path: Path) -> None:
    """While a table is written on; names that begin with an underscore are no data."""
    keeping(pipe, 7 * 86_400)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))")
    pipe.sql(f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(25))}")
    pipe.run()
    write(pipe, tmp_path / "files")
    folder = str(tmp_path / "files" / f"{pipe.database}.t")
    schema = pipe.spark.read.parquet(folder).schema
    stream = pipe.spark.readStream.schema(schema).parquet(folder)

    def read_on() -> list[tuple[str, int]]:
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "seen"))
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()
        rows = pipe.spark.read.parquet(str(tmp_path / "seen")).select(POSITION, "id").collect()
        return sorted((row[0], row[1]) for row in rows)

    assert len(read_on()) == 25
    change(pipe)
    pipe.run()
    write(pipe, tmp_path / "files")
    assert read_on() == sorted((doc["position"], doc["data"]["id"]) for doc in printed(pipe))


NAME = "t. ü`鱼 x"


def test_any_name_of_a_table_is_one_folder(pipe: Pipe, tmp_path: Path) -> None:
    """Dots, spaces, backquotes and letters of any script, in names of columns, too."""
    keeping(pipe, 7 * 86_400)
    quoted = NAME.replace("`", "``")
    pipe.sql(f"CREATE TABLE `{quoted}` (id INT PRIMARY KEY, `a. 鱼` INT)", f"INSERT INTO `{quoted}` VALUES (1, 2)")
    pipe.run()
    [name] = write(pipe, tmp_path / "files", NAME)
    [folder] = (tmp_path / "files").iterdir()
    rows = pq.read_table(folder / name).to_pylist()
    assert [(row["id"], row["a. 鱼"]) for row in rows] == [(1, 2)]


@pytest.fixture(params=["folder", "s3", pytest.param("gcs", marks=pytest.mark.local)])
def files_in(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Storage | None]:
    """A new folder for files, and how its store is reached: on this machine, in S3, and by Google's protocol."""
    name = uuid.uuid4().hex
    if request.param == "folder":
        return str(tmp_path / name), None
    if request.param == "s3":
        server: LocalS3 = request.getfixturevalue("s3")
        return f"s3://{server.bucket}/{name}", storage_of(server)
    return f"gs://{BUCKET}/{name}", gcs_storage(request.getfixturevalue("gcs"))


@pytest.mark.long("dies at each step, in a folder and in buckets")
def test_wherever_a_process_dies_each_row_is_in_one_file(
    pipe: Pipe, files_in: tuple[str, Storage | None], record_property: Callable[..., None]
) -> None:
    """At each change of a name; the next process finishes what was begun, and readers see no part of a lost copy."""
    keeping(pipe, 7 * 86_400)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))")
    pipe.sql(f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(25))}")
    pipe.run()
    change(pipe)
    pipe.run()
    files, storage = files_in
    if storage is not None:  # of the files; tables and state are where they were
        target = pipe.config.target.model_copy(update={"storage": storage})
        pipe.config = pipe.config.model_copy(update={"target": target})
    expected, step, left = printed(pipe), 0, [0]
    copies = {doc["position"] for doc in expected[:25]}
    while left[0] == 0:
        to = f"{files}/{step}"
        with killed_at(step) as left:
            write(pipe, to)
        folder = folder_of(pipe, to)
        seen = docs_of(rows_in(folder))
        assert seen == expected[: len(seen)]
        write(pipe, to)
        assert docs_of(rows_in(folder)) == expected, step
        step += 1
    assert len(copies) == 2
    assert step > 8
    store = Place.of(files).scheme or "a folder"
    record_property("deaths of a process that writes the changelog into files", f"{store}: {step}")


@pytest.mark.long("kills processes that follow a busy table")
def test_killed_processes_leave_no_gap_and_no_row_twice(tmp_path: Path, mysql_server: LocalServer) -> None:
    """Each dies by SIGKILL a moment after it has written a file; the last one ends by SIGTERM with exit code 0."""
    chance = random.Random(49)
    job = Job(tmp_path / "job", mysql_server, "killed_files", 500).write()
    rows = ", ".join(f"({i}, 'v{i}', {i} / 3)" for i in range(1, ROWS // 8))
    job.sql(f"USE {job.database}", TABLE, f"INSERT INTO items VALUES {rows}")
    assert job.run()[0] == 0
    folder = job.folder / "files" / f"{job.database}.items"
    options = ("--to", "files", "--follow", "--file-rows", "40", "--file-seconds", "0.5")

    def count() -> int:
        return len(list(folder.glob("*.parquet")))

    def are_more_than(before: int) -> bool:
        return count() > before

    follower = job.start("run", "--follow", stdout=None)
    with written_to(job, chance):
        for _ in range(KILLS):
            before, process = count(), job.start("changelog", f"{job.database}.items", *options)
            soon(partial(are_more_than, before))
            time.sleep(chance.random() * 2)
            process.kill()
            process.communicate(timeout=60)
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(timeout=120) == 0
    assert job.run()[0] == 0
    process = job.start("changelog", f"{job.database}.items", *options)
    code, said = job.call("changelog", f"{job.database}.items")
    assert code == 0, said
    expected = [json.loads(line, parse_float=Decimal) for line in said.splitlines()]
    last = expected[-1]["position"]
    soon(lambda: rows_in(Local(folder))[-1][POSITION] == last)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert docs_of(rows_in(Local(folder))) == expected
