"""Clusterings by others: what changes no row is gone on from, what may have changed rows is refused by name."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.core.copies.ownership import Owner
from lakeingest.errors import ForeignWrite
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_rollbacks
from lakeingest.lake.hudi import clusterings, file_groups
from lakeingest.lake.hudi.base_files import groups_of
from lakeingest.lake.hudi.clusterings import Clustering, GroupFile, harm_of
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.package import HUDI
from lakeingest.lake.target import Staged
from tests.lake.hudi.test_services import call
from tests.lake.steps import Crash, Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

SHOWN = {"a": GroupFile("a_1", 3), "b": GroupFile("b_1", 4), "c": GroupFile("c_1", 0)}
HARMLESS = Clustering(
    "2", "CLUSTER", {"a": "a_1", "b": "b_1"}, frozenset("ab"), {"x": GroupFile("x_2", 5), "y": GroupFile("y_2", 2)}
)
HARMFUL: dict[str, dict[str, Any]] = {
    "the operation is INSERT_OVERWRITE": {"operation": "INSERT_OVERWRITE"},
    "its plan is gone": {"planned": None},
    "a savepoint keeps it": {"is_kept": True},
    "in other folders": {"written": {"x": GroupFile("day=1/x_2", 7)}},
    "or are not those that readers saw": {"replaced": frozenset("az")},
    "it wrote to file groups that were there": {"written": {"c": GroupFile("c_2", 7)}},
    "planned before the last commit": {"planned": {"a": "a_0", "b": "b_1"}},
    "took back": {"planned": {"a": "a_1"}},
    "it has 6 rows in place of 7": {"written": {"x": GroupFile("x_2", 6)}},
    "it has 0 rows in place of 7": {"written": {}},
}


def test_a_clustering_with_the_same_rows_does_no_harm() -> None:
    """Also one of the files that another one wrote."""
    then = Clustering(
        "3", "CLUSTER", {"x": "x_2", "c": "c_1"}, frozenset("xc"), {"z": GroupFile("z_3", 5), "e": GroupFile("e_3", 0)}
    )
    assert harm_of([], SHOWN) is None
    assert harm_of([HARMLESS], SHOWN) is None
    assert harm_of([HARMLESS, then], SHOWN) is None
    again = harm_of([HARMLESS, then, HARMLESS], SHOWN)
    assert again is not None
    assert again.clustering is HARMLESS


@pytest.mark.parametrize("reason", HARMFUL)
def test_a_clustering_that_may_have_changed_rows_is_named_with_the_reason(reason: str) -> None:
    """Each fact alone is enough."""
    found = harm_of([replace(HARMLESS, **HARMFUL[reason])], SHOWN)
    assert found is not None
    assert reason in found.reason


def test_a_clustering_of_files_that_are_gone_is_not_believed() -> None:
    """The number of rows is the only comparison of its rows with ours."""
    found = harm_of([HARMLESS], {**SHOWN, "b": GroupFile("b_1", None)})
    assert found is not None
    assert "gone" in found.reason


def folder(lake: Lake) -> Local:
    """Where readers find the table."""
    return Local(lake.settings.folder(lake.table).path)


def entries(lake: Lake, pattern: str) -> list[Local]:
    """Entries of the timeline, the oldest first."""
    return sorted(one for one in (folder(lake) / ".hoodie" / "timeline").glob(pattern) if not one.name.startswith("."))


def clusterings_left(lake: Lake) -> list[str]:
    """The entries of clusterings, and their data files."""
    found = [*entries(lake, "*.clustering.*"), *entries(lake, "*replacecommit*")]
    in_buckets = {group.name for group in groups_of(our_files(lake), folder(lake), 1 << 20).values()}
    others = [file for file in folder(lake).glob("*.parquet") if file.name.partition("_")[0] not in in_buckets]
    return [file.name for file in (*found, *others)]


def our_files(lake: Lake) -> list[Local]:
    """The files of our last commit."""
    ours = our_last_commit(lake.table, folder(lake))
    assert ours is not None
    return [file for file in visible_files(folder(lake), ours.time) if isinstance(file, Local)]


def cluster(lake: Lake, spark: SparkSession, operation: str = "scheduleAndExecute") -> None:
    """Have Hudi cluster the table, or only plan it, or do what was planned."""
    call(lake, spark, "run_clustering", op=operation)


def alone(lake: Lake, staged: Staged) -> Staged:
    """Publish in a process that has no Spark."""
    audited = replace(staged, progress=staged.progress.audited())
    return lake.without_spark().publish(audited, lake.schema, {"lakeingest.gate": "{}"})


ROWS: tuple[tuple[int, str], ...] = tuple((key, f"row {key}") for key in range(40))
CHANGES = ((1, "A", False), (3, None, True), (99, "new", False))
CHANGED = sorted([(1, "A"), (99, "new"), *(row for row in ROWS if row[0] not in {1, 3})])


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_between_publishes_is_gone_on_from(lake: Lake, spark: SparkSession) -> None:
    """Twice before the next publish, which needs no Spark; then again. What was staged before stays."""
    lake.published(*ROWS)
    staged = lake.merge(lake.loaded(), *CHANGES, pos=30)
    before = len(our_files(lake))
    cluster(lake, spark)
    assert lake.seen() == sorted(ROWS)
    cluster(lake, spark)
    loaded = lake.loaded()
    assert loaded == staged
    assert lake.open().inspect(lake.table) == staged
    assert lake.rows(loaded) == CHANGED
    assert lake.open().batch_readers(lake.table, loaded.published or 0, ["id"]) is None  # Spark reads what readers see
    alone(lake, loaded)
    assert lake.seen() == CHANGED
    assert clusterings_left(lake) == []
    assert len(our_files(lake)) == before
    cluster(lake, spark)
    alone(lake, lake.merge(lake.loaded(), (3, "again", False), pos=40))
    assert lake.seen() == sorted([*CHANGED, (3, "again")])
    assert lake.open().batch_readers(lake.table, lake.loaded().version, ["id"]) is not None


@pytest.mark.long("clusterings by Spark")
def test_a_table_is_read_as_readers_see_it_while_it_is_clustered(lake: Lake, spark: SparkSession) -> None:
    """A comparison reads the files of the clustering: with a row changed in them, it is seen."""
    published = lake.published(*ROWS)
    cluster(lake, spark)
    assert lake.rows(lake.loaded()) == sorted(ROWS)
    [written] = [file for file in folder(lake).glob("*.parquet") if file not in our_files(lake)]
    for file in our_files(lake):
        file.rename(file.with_name(f"{file.name}.away"))
    assert lake.rows(published) == sorted(ROWS)
    assert written.exists()


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_that_is_only_planned_is_taken_back_by_the_next_publish(lake: Lake, spark: SparkSession) -> None:
    """Until then it stays. Whoever wants to do it then has nothing to do."""
    lake.published(*ROWS)
    cluster(lake, spark, "schedule")
    staged = lake.merge(lake.loaded(), *CHANGES, pos=30)
    assert len(entries(lake, "*.clustering.requested")) == 1
    alone(lake, staged)
    assert clusterings_left(lake) == []
    cluster(lake, spark, "execute")
    assert lake.seen() == CHANGED


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_that_someone_is_at_does_not_take_back_a_publish(lake: Lake, spark: SparkSession) -> None:
    """It read the rows before the publish; its process fails, or it was done before."""
    lake.published(*ROWS)
    cluster(lake, spark, "schedule")
    staged = lake.merge(lake.loaded(), *CHANGES, pos=30)

    def execute() -> None:
        with suppress(Py4JJavaError):
            cluster(lake, spark, "execute")

    other = threading.Thread(target=execute)
    other.start()
    while other.is_alive() and not entries(lake, "*.clustering.inflight"):
        time.sleep(0.01)
    alone(lake, staged)
    other.join()
    assert lake.seen() == CHANGED
    lake.publish(lake.merge(lake.loaded(), (3, "again", False), pos=40))
    assert lake.seen() == sorted([*CHANGED, (3, "again")])


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_whose_process_died_is_taken_back(lake: Lake, spark: SparkSession) -> None:
    """It has left a plan, an entry and files, which nobody reads."""
    lake.published(*ROWS)
    cluster(lake, spark)
    [completed] = entries(lake, "*_*.replacecommit")
    completed.unlink()
    (completed.parent / f".{completed.name}.crc").unlink()
    assert lake.seen() == sorted(ROWS)
    alone(lake, lake.merge(lake.loaded(), *CHANGES, pos=30))
    assert lake.seen() == CHANGED
    assert clusterings_left(lake) == []


@pytest.mark.long("clusterings by Spark")
def test_files_that_come_late_are_deleted_before_hudi_archives(lake: Lake, spark: SparkSession) -> None:
    """After their time is archived, every reader would take them for files of a commit."""
    lake.published(*ROWS)
    cluster(lake, spark)
    [written] = [file for file in folder(lake).glob("*.parquet") if file not in our_files(lake)]
    contents = written.read_bytes()
    alone(lake, lake.merge(lake.loaded(), *CHANGES, pos=30))
    written.write_bytes(contents)
    assert lake.seen() == CHANGED
    alone(lake, lake.merge(lake.loaded(), (3, "again", False), pos=40))
    lake.publish(lake.open().maintain(lake.loaded()))  # Hudi publishes it
    assert not written.exists()
    assert lake.seen() == sorted([*CHANGED, (3, "again")])


@pytest.fixture
def late(lake: Lake, spark: SparkSession) -> Callable[[], None]:
    """Do a clustering that was planned before the last publish, as if nobody had taken its plan back."""
    lake.published(*ROWS)
    cluster(lake, spark, "schedule")
    [plan] = entries(lake, "*.clustering.requested")
    hidden = plan.rename(folder(lake) / "hidden")
    lake.publish(lake.merge(lake.loaded(), *CHANGES, pos=30))
    hidden.rename(plan)
    return lambda: cluster(lake, spark, "execute")


@pytest.mark.parametrize("completed", ["after it", "while it was written"])
@pytest.mark.long("clusterings by Spark")
def test_a_clustering_that_takes_back_a_publish_is_refused_and_rolled_back(
    lake: Lake, lake_config: Config, late: Callable[[], None], completed: str
) -> None:
    """Readers see the rows from before it: that is a change of rows, whichever of the two was completed first."""
    late()
    [done] = entries(lake, "*_*.replacecommit")
    if completed == "while it was written":
        commits = entries(lake, "*_*.commit")
        last = commits[-1].stem.partition("_")[2]
        done.rename(done.with_name(f"{done.name.partition('_')[0]}_{int(last) - 1}.replacecommit"))
        (done.parent / f".{done.name}.crc").unlink()
    assert lake.seen() == sorted(ROWS)
    for step in (lake.open().recover, lake.open().inspect):
        with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else clustered it by .* planned before"):
            step(lake.table)
    rollbacks = open_rollbacks(lake_config)
    found = rollbacks.found(lake.table)
    assert found is not None
    rollbacks.roll_back(lake.table, found)
    assert lake.seen() == CHANGED
    alone(lake, lake.merge(lake.loaded(), (3, "again", False), pos=40))
    assert lake.seen() == sorted([*CHANGED, (3, "again")])
    assert clusterings_left(lake) == []


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_of_files_that_were_cleaned_is_refused(
    lake: Lake, lake_config: Config, spark: SparkSession
) -> None:
    """Nothing is left to compare its rows with, nor to go back to: the copy is made again."""
    lake.published(*ROWS)
    cluster(lake, spark)
    assert lake.loaded().published is not None  # this process has looked at it
    spark.sql(f"CREATE TABLE cleaned USING hudi LOCATION '{folder(lake)}'")
    policy = "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1"
    spark.sql(f"CALL run_clean(table => 'cleaned', {policy})").collect()
    spark.sql("DROP TABLE cleaned")
    gone = [file for file in our_files(lake) if not file.exists()]
    assert gone
    clusterings._judged.clear()  # noqa: SLF001 - as in another process
    file_groups._known_files.clear()  # noqa: SLF001
    with pytest.raises(ForeignWrite, match="files that it replaced are gone"):
        lake.open().recover(lake.table)
    with pytest.raises(ForeignWrite, match="cannot be rolled back"):
        open_rollbacks(lake_config).found(lake.table)
    assert lake.seen() == sorted(ROWS)


@pytest.mark.long("clusterings by Spark")
def test_a_publish_that_dies_while_it_takes_a_clustering_back_is_repeated(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each deletion of a file; readers see the published rows before and after."""
    lake.published(*ROWS)
    cluster(lake, spark)
    staged = lake.merge(lake.loaded(), *CHANGES, pos=30)
    real = Local.unlink
    died = 0
    for deletions in range(12):
        left = deletions

        def unlink(file: Local, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as Python's
            nonlocal left
            if not left:
                raise Crash
            left -= 1
            real(file, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Local, "unlink", unlink)
            try:
                folder_of = lake.open()._folder_of(lake.table)  # type: ignore[attr-defined] # noqa: SLF001
                folder_of.take_back_clusterings()
            except Crash:
                died += 1
        assert lake.loaded() == staged
        assert lake.seen() == sorted(ROWS)
    assert died
    alone(lake, lake.loaded())
    assert lake.seen() == CHANGED
    assert clusterings_left(lake) == []


@pytest.mark.long("clusterings by Spark")
def test_another_pipeline_adopts_a_copy_that_is_clustered(lake: Lake, lake_config: Config, spark: SparkSession) -> None:
    """Its commit of the new owner would hide the clustering, so this is taken back before."""
    lake.published(*ROWS)
    cluster(lake, spark)
    HUDI.adoptions(lake_config, Owner("other", "1", "file:/elsewhere")).adopt(lake.table)
    assert lake.seen() == sorted(ROWS)
    assert clusterings_left(lake) == []


@pytest.mark.parametrize("seed", [1])
@pytest.mark.long("many table services by Spark")
def test_rounds_beside_table_services_are_exact(lake: Lake, spark: SparkSession, seed: int) -> None:
    """Plans, clusterings, savepoints and cleanings in any order: after each, readers see what was published."""
    chance = random.Random(seed)
    rows: dict[int, str] = dict(ROWS)
    lake.published(*ROWS)
    name = f"served_{lake.table.name}_{seed}"
    spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{folder(lake)}'")
    services: dict[str, Callable[[], object]] = {
        "plan": lambda: cluster(lake, spark, "schedule"),
        "do": lambda: cluster(lake, spark, "execute"),
        "cluster": lambda: cluster(lake, spark),
        "sort": lambda: call(lake, spark, "run_clustering", order="v"),
        "clean": lambda: spark.sql(f"CALL run_clean(table => '{name}', retain_commits => 20)").collect(),
    }
    pos = 30
    for _ in range(3):
        for service in chance.sample(sorted(services), 2):
            services[service]()
            assert lake.seen() == sorted(rows.items()), service
        chosen = chance.sample(range(60), 5)
        changes = [(key, f"{pos}", chance.random() < 0.4) for key in chosen]
        for key, value, is_deleted in changes:
            rows.pop(key, None)
            if not is_deleted:
                rows[key] = value
        lake.publish(lake.merge(lake.loaded(), *((k, None if d else v, d) for k, v, d in changes), pos=pos))
        assert lake.seen() == sorted(rows.items())
        assert clusterings_left(lake) == []
        pos += 10
    spark.sql(f"DROP TABLE {name}")
