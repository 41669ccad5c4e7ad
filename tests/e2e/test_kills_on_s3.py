"""Runs under load that are killed, on a store and a catalog that fail all the time; each goes on from an empty folder.

Catalog, tables and state are servers behind proxies: the store's loses 30 % of the answers and is overloaded now and
then, the catalog's loses and falsifies answers and sends requests twice. Readers ask both servers themselves.
LAKEINGEST_KILLS sets the number of kills.
"""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest import Pipeline
from lakeingest.commands.signal import ask
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import LocalServer
from lakeingest.files import file as files
from lakeingest.pipeline.signals import maintenance, serving
from lakeingest.state.signals import SignalFolder
from tests.e2e.job import Job, command_lines, descendants, is_worker, signal_all
from tests.e2e.test_resnapshots_under_load import CHUNK_ROWS, CLOCK, ROWS, Load, fill, scope
from tests.faults.beside import beside
from tests.faults.spoiling import BadCatalog, BadStore, proxied
from tests.lake.shown import catalog_of, shown
from tests.servers.catalog_servers import add_catalog, object_store, rest_server

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "4"))
WORK_SECONDS = 12.0  # the longest time after which a run is killed that has begun its work
SPARK_SECONDS = 60.0  # until a part of Spark is looked for in vain: not all runs need it
BEGIN_SECONDS = 900.0  # until a run has begun its work, on a machine that has much else to do
TRIES = 20  # of a run that is not killed, but whose requests are spoiled, too
# what the state has at its end: each of these is replaced or removed by a run, or its number is limited
DOCUMENTS = re.compile(
    r"(owner|identity|lease|last_run|quiet|fresh|following)\.json"
    r"|(definitions|manifests|stopped|signals|quality|audit\.jsonl)/.*"
    r"|waiting/[^/]+/began\.json|spool/((opened|boundaries|id)\.json|(segments|archive|rereads)/.*\.json)"
)


@dataclass(frozen=True)
class Lake:
    """A pipeline, as its runs reach the servers and as readers do."""

    job: Job
    readers: Job
    store: LocalS3
    catalog_faults: Counter[str]
    store_faults: Counter[str]


@pytest.fixture
def lake(tmp_path: Path, mysql_server: LocalServer) -> Iterator[Lake]:
    """A pipeline with a table that is not copied yet."""
    with (
        object_store(tmp_path) as store,
        rest_server(tmp_path, store=store) as uri,
        proxied(uri, BadCatalog) as (bad_catalog, bad_uri),
        proxied(store.endpoint, BadStore) as (bad_store, bad_endpoint),
    ):
        assert isinstance(bad_catalog, BadCatalog)
        assert isinstance(bad_store, BadStore)

        def target(uri: str, endpoint: str) -> dict[str, Any]:
            keys = {"s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key}
            return {
                "catalog": {"type": "rest", "uri": uri, "name": "killed"},
                "warehouse": f"s3://{store.bucket}/warehouse",
                "storage": {**store.storage, "endpoint": endpoint, "properties": keys},
            }

        spoiled, straight = target(bad_uri, bad_endpoint), target(uri, store.endpoint)
        stored = f"s3://{store.bucket}/state/of a job"
        job = Job(tmp_path / "job", mysql_server, "killed_on_s3", CHUNK_ROWS, target=spoiled, stored=stored).write()
        readers = replace(job.on_another_machine(tmp_path / "readers"), target=straight)
        file = readers.folder / "pipeline.yml"
        doc = json.loads(file.read_text())
        file.write_text(json.dumps(doc | {"target": {**doc["target"], **straight}}))
        fill(job)
        yield Lake(job, readers, store, bad_catalog.met, bad_store.met)
        job.sql(f"DROP DATABASE {job.database}")


def driver(process: "subprocess.Popen[str]") -> bool:
    """Kill the process that was started, and nothing that it has started."""
    is_there = process.poll() is None
    process.kill()
    return is_there


def tree(process: "subprocess.Popen[str]") -> bool:
    """Kill a machine: the process, Spark's JVM and workers, at once."""
    found = list(descendants(process.pid)) if process.poll() is None else []
    signal_all(found, signal.SIGKILL)
    return bool(found)


def worker(process: "subprocess.Popen[str]") -> bool:
    """Kill a Python worker of Spark, or what starts them."""
    return _kill_one(process, is_worker)


def executor(process: "subprocess.Popen[str]") -> bool:
    """Kill the JVM, which is Spark's executor here."""
    return _kill_one(process, lambda line: line.partition("\0")[0].endswith("java"))


def _kill_one(process: "subprocess.Popen[str]", chosen: Callable[[str], bool]) -> bool:
    """Kill the youngest such process, once Spark has workers; whether it had."""
    lines: dict[int, str] = {}

    def look() -> bool:
        lines.clear()
        lines.update(command_lines(process.pid))
        return any(map(is_worker, lines.values()))

    wait(process, look, SPARK_SECONDS)
    found = [pid for pid, line in lines.items() if chosen(line)] if any(map(is_worker, lines.values())) else []
    with suppress(IndexError, ProcessLookupError):
        os.kill(found[-1], signal.SIGKILL)
        return True
    return False


KINDS = (driver, tree, executor, worker)


@dataclass
class Machines:
    """One machine after the other runs the pipeline; each has an empty folder."""

    lake: Lake
    folder: Path
    number: int = 0

    def run(self, *arguments: str) -> "tuple[subprocess.Popen[str], Path]":
        """Start a run on a new machine; its process, and the file of what it says."""
        self.number += 1
        machine = self.lake.job.on_another_machine(self.folder / f"machine{self.number}")
        log = self.folder / f"machine{self.number}.log"
        with log.open("w") as output:
            return machine.start("run", *arguments, stdout=output), log


def killed(machines: Machines, kind: Callable[["subprocess.Popen[str]"], bool], chance: random.Random) -> str:
    """Let a machine run, and kill it or a part of it at a random moment; how that ended."""
    process, log = machines.run("--follow")
    pids = [process.pid]
    try:
        wait(process, lambda: log.stat().st_size > 0, BEGIN_SECONDS)
        wait(process, lambda: False, chance.random() * WORK_SECONDS)
        pids = list(descendants(process.pid))
        if not kind(process):
            return ended(process, log) if process.poll() is not None else "nothing to kill"
        if kind in {driver, tree}:
            return kind.__name__
        wait(process, lambda: False, chance.random() * WORK_SECONDS)
        return f"{kind.__name__}, then {'on it goes' if process.poll() is None else ended(process, log)}"
    finally:
        if process.poll() is None:
            tree(process)
        process.wait()
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):  # what was not killed notices that, and ends
            assert time.monotonic() < deadline
            time.sleep(0.1)


def wait(process: "subprocess.Popen[str]", sign: Callable[[], bool], seconds: float) -> None:
    """Wait for a sign, for the end of the process, or for so long."""
    end = time.monotonic() + seconds
    while process.poll() is None and not sign() and time.monotonic() < end:
        time.sleep(0.1)


def ended(process: "subprocess.Popen[str]", log: Path) -> str:
    """How a run ended by itself: it may, where the store or the catalog was away for too long."""
    assert process.returncode == 75, log.read_text()[-3000:]
    [name] = re.findall(r"\(runbook: (\w+)\)", log.read_text().splitlines()[-1]) or [""]
    return f"75 {name}"


def look(lake: Lake, load: Load, spark: SparkSession) -> None:
    """Readers with PyIceberg and with Spark see a table of the source, once it is published."""
    with catalog_of(lake.readers.config.target) as catalog:
        if not catalog.table_exists((lake.job.database, "t")):
            return
    load.look()
    spark.catalog.refreshTable(f"killed.{lake.job.database}.t")
    rows = shown(spark, lake.readers.config.target, TableId(lake.job.database, "t"))
    numbers = {key: n for key, n, _ in map(tuple, rows.collect())}
    assert len(numbers) == ROWS + 1
    assert sum(numbers.values()) - numbers[CLOCK] == 1000 * ROWS
    assert numbers[CLOCK] >= load.clock


def add_table(lake: Lake, number: int) -> None:
    """Add a table to be copied, so that Spark has something to do."""
    name = f"{lake.job.database}.more{number}"
    lake.job.sql(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # no locks beside the load
        f"CREATE TABLE {name} LIKE {lake.job.database}.t",
        f"INSERT INTO {name} SELECT * FROM {lake.job.database}.t",
    )


def tables(lake: Lake) -> list[str]:
    """The names of all tables."""
    return [name for (name,) in lake.job.sql(f"SHOW TABLES FROM {lake.job.database}")]


def keep_reading_again(lake: Lake, chance: random.Random) -> None:
    """One re-snapshot is open at all times."""
    folder = SignalFolder(files.state_of(lake.readers.config))
    if all(one.ended for one in folder.read()):
        Pipeline(lake.readers.config).resnapshot(f"{lake.job.database}.t", **scope(chance), wait=False)


def referenced(table: Table) -> set[str]:
    """The keys of all objects that a table refers to."""
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        manifests = snapshot.manifests(table.io)
        found |= {snapshot.manifest_list, *(one.manifest_path for one in manifests)}
        found |= {entry.data_file.file_path for one in manifests for entry in one.fetch_manifest_entry(table.io)}
    return {path.split("/", 3)[3] for path in found}


def without_slow_readers(config: Config) -> Config:
    """No query goes on that began before: no removal of files waits for one."""
    history = config.target.history.model_copy(update={"readers": timedelta(0)})
    return config.model_copy(update={"target": config.target.model_copy(update={"history": history})})


def left_over(lake: Lake) -> list[str]:
    """Objects that nothing refers to, and uploads that nobody will finish."""
    store, config = lake.store, lake.readers.config
    client = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=store.secret_key,
        region_name="us-east-1",
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket)
    keys = {one["Key"] for page in pages for one in page.get("Contents", ())}
    with catalog_of(config.target) as catalog:
        named = set[str]().union(*(referenced(catalog.load_table((lake.job.database, name))) for name in tables(lake)))
    assert named <= keys
    state = config.state.written.removeprefix(f"s3://{store.bucket}/")
    folder = files.state_of(config) / "spool"
    kept = [*(folder / "segments").listed("*.json"), *(folder / "archive").listed("*.json")]
    data = {
        f"{state}/spool/{name.decode()}"
        for document in files.read_all(kept)
        for name in re.findall(rb"data/[\w.-]+", document)
    }
    for document in (folder / "rereads").tree():
        if document.suffix == ".json":
            table = f"{state}/spool/rereads/{document.parent.name}"
            data |= {f"{table}/{name.decode()}" for name in re.findall(rb"[\w.-]+\.parquet", document.read())}
    uploads = client.list_multipart_uploads(Bucket=store.bucket).get("Uploads", ())
    return sorted(
        key
        for key in keys - named - data
        if not key.endswith("/")  # a folder of the server's disk
        and not (key.startswith(f"{state}/") and DOCUMENTS.fullmatch(key.removeprefix(f"{state}/")))
    ) + sorted(f"upload of {one['Key']}" for one in uploads)


def finish(machines: Machines, endings: Counter[str]) -> None:
    """Let machines run, one after the other, until a run has come to its end."""
    for _ in range(TRIES):
        process, log = machines.run()
        if process.wait(timeout=BEGIN_SECONDS) == 0:
            return
        endings[f"not killed: {ended(process, log)}"] += 1
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.long("starts many processes with a Spark each")
def test_runs_that_are_killed_on_a_bad_store_and_a_bad_catalog(
    lake: Lake,
    tmp_path: Path,
    spark: SparkSession,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every reader sees a table of the source at all times; in the end both are equal, and nothing is left over."""
    add_catalog(spark, lake.readers.config.target)
    chance, machines, load = random.Random(KILLS), Machines(lake, tmp_path), Load(lake.readers, random.Random(1))
    endings: Counter[str] = Counter()
    began = time.monotonic()
    with beside(lambda _, is_over: load.write(is_over), 1):
        kills, due = 0, len(KINDS)
        while kills < KILLS:
            if kills == due:  # one run comes to its end; after the first one readers have a table
                finish(machines, endings)
                due += 28
            kind = KINDS[endings.total() % len(KINDS)]
            if kind in {executor, worker}:
                add_table(lake, endings.total())
            how = killed(machines, kind, chance)
            endings[how] += 1
            kills += not how.startswith(("75", "nothing"))
            keep_reading_again(lake, chance)
            look(lake, load, spark)
            print(f"{time.monotonic() - began:6.0f} s  {kills} kills  {how}  clock {load.clock}", flush=True)  # noqa: T201
    seconds = time.monotonic() - began
    finish(machines, endings)
    look(lake, load, spark)
    assert [name for name in tables(lake) if lake.readers.published(name) != lake.readers.source(name)] == []
    verify = lake.readers.start("verify")
    said, _ = verify.communicate(timeout=BEGIN_SECONDS)
    assert verify.returncode == 0, said
    found = left_over(lake)
    monkeypatch.setattr(maintenance, "LEFTOVER_AGE", timedelta(0))
    monkeypatch.setattr(serving, "LEFTOVER_AGE", timedelta(0))
    time.sleep(1.5)  # the store tells whole seconds
    [done] = ask(without_slow_readers(lake.readers.config), "maintain", spark=spark)
    assert done.state == "done", done.why
    assert [name for name in tables(lake) if lake.readers.published(name) != lake.readers.source(name)] == []
    shown_as = "kills on S3 and REST"
    record_property(
        shown_as, f"{kills} kills in {seconds:.0f} s, {load.changes} changes, {load.polls} polls by each reader"
    )
    record_property(shown_as, f"endings: {dict(endings)}")
    record_property(shown_as, f"faults of the catalog: {dict(lake.catalog_faults)}")
    record_property(shown_as, f"faults of the store: {dict(lake.store_faults)}")
    record_property(shown_as, f"left over before maintain: {len(found)}; after: {(left := left_over(lake))}")
    assert left == []
