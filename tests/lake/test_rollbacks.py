"""Rollbacks: after someone else has changed a copy, readers see the last published commit of lakeingest again."""

from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.errors import ForeignWrite, StaleWriter
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_rollbacks
from lakeingest.lake.rollbacks import Rollback, Rollbacks
from tests.lake.steps import Crash, Lake, Raw

pytestmark = [pytest.mark.spark, pytest.mark.formats]

Others = Callable[[Lake, int], None]


@pytest.fixture
def rollbacks(lake_config: Config) -> Callable[[], Rollbacks]:
    """Rollbacks of a process of their own."""
    return lambda: open_rollbacks(lake_config)


@pytest.fixture
def insert(spark: SparkSession) -> Others:
    """Someone else's row, written as their own jobs do it."""

    def write(lake: Lake, key: int) -> None:
        if lake.settings.format == "iceberg":
            spark.sql(f"INSERT INTO {CATALOG}.{lake.table} VALUES ({key}, 'foreign')")
            return
        place = lake.settings.folder(lake.table).hadoop
        options = {"hoodie.table.name": lake.table.name, "hoodie.datasource.write.recordkey.field": "id"}
        rows = spark.createDataFrame([(key, "foreign")], "id int, v string")
        rows.write.format("hudi").options(**options).mode("append").save(place)

    return write


def expected(lake: Lake, rollbacks: Callable[[], Rollbacks]) -> Rollback:
    """What is to be taken back, of which there is something."""
    found = rollbacks().found(lake.table)
    assert found is not None
    return found


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_readers_see_our_last_commit_again(lake: Lake, rollbacks: Callable[[], Rollbacks], insert: Others) -> None:
    """Whatever others committed above it; what was staged stays, and the table goes on."""
    assert rollbacks().found(lake.table) is None
    published = lake.published((1, "a"), (2, "b"))
    assert rollbacks().found(lake.table) is None
    staged = lake.merge(lake.loaded(), (1, "A", False), (3, "c", False), pos=30)
    assert rollbacks().found(lake.table) is None
    insert(lake, 98)
    insert(lake, 2)
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote .* `lakeingest rollback {lake.table}`"):
        lake.open().recover(lake.table)
    found = expected(lake, rollbacks)
    assert (found.version, len(found.drops), found.restores) == (published.version, 2, ())
    assert found.shows in str(found)
    assert Rollback.of_json(found.to_json()) == found
    with pytest.raises(ForeignWrite, match=f"lets them see {found.shows}, the last one"):
        lake.open().inspect(lake.table)

    rollbacks().roll_back(lake.table, found)
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert rollbacks().found(lake.table) is None
    loaded = lake.loaded()
    assert (loaded.version, loaded.published) == (staged.version, published.version)
    lake.publish(loaded)
    assert lake.seen() == [(1, "A"), (2, "b"), (3, "c")]
    lake.publish(lake.merge(lake.loaded(), (2, None, True), pos=40))
    assert lake.seen() == [(1, "A"), (3, "c")]


@pytest.mark.long("several writes of others")
def test_a_commit_that_came_since_is_not_dropped_unseen(
    lake: Lake, rollbacks: Callable[[], Rollbacks], insert: Others
) -> None:
    """Who asks again is told of it."""
    lake.published((1, "a"))
    insert(lake, 98)
    found = expected(lake, rollbacks)
    insert(lake, 99)
    with pytest.raises(StaleWriter, match=str(lake.table)):
        rollbacks().roll_back(lake.table, found)
    now = expected(lake, rollbacks)
    assert now.drops[1:] == found.drops
    rollbacks().roll_back(lake.table, now)
    assert lake.seen() == [(1, "a")]


@pytest.mark.long("several writes of others")
def test_a_rollback_that_is_interrupted_goes_on(
    lake: Lake, rollbacks: Callable[[], Rollbacks], insert: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each deletion of a file; the table goes on also where only its last step is missing."""
    if lake.settings.format == "iceberg":
        pytest.skip("one commit: tests of commits have its interruptions")
    lake.published((1, "a"))
    insert(lake, 98)
    insert(lake, 1)
    first = expected(lake, rollbacks)
    real, tries = Local.delete, 0
    while (found := rollbacks().found(lake.table)) is not None:
        assert found.shows == first.shows
        assert set(found.drops) <= set(first.drops)
        left = 1

        def delete(file: Local) -> None:
            nonlocal left
            if not left:
                raise Crash
            left -= 1
            real(file)

        with monkeypatch.context() as patch:
            patch.setattr(Local, "delete", delete)
            with pytest.raises(Crash):
                rollbacks().roll_back(lake.table, found)
        tries += 1
    assert tries > 1
    assert lake.seen() == [(1, "a")]
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "A"), (2, "b")]


ALTERED: Mapping[str, tuple[str, str]] = {
    "an added column": ("ADD COLUMN w int", "columns"),
    "a dropped column": ("DROP COLUMN v", "columns"),
    "a renamed column": ("RENAME COLUMN v TO w", "columns"),
    "a wider type": ("ALTER COLUMN id TYPE bigint", "columns"),
    "partitions": ("ADD PARTITION FIELD v", "partitions"),
    "a folder": ("SET LOCATION 'file:/tmp/elsewhere'", "folder"),
}


@pytest.mark.parametrize("how", ALTERED)
@pytest.mark.parametrize("rewritten", [False, True], ids=["alone", "with a compaction"])
@pytest.mark.long("many changes by Spark", only=("with a compaction", *set(ALTERED) - {"an added column"}, "hudi"))
def test_columns_partitions_and_folder_become_as_they_were(
    lake: Lake, rollbacks: Callable[[], Rollbacks], raw: Raw, how: str, *, rewritten: bool
) -> None:
    """In the same commit, with every value: our files were never changed."""
    if lake.settings.format == "hudi":
        pytest.skip("there a changed column is a commit")
    statement, restored = ALTERED[how]
    lake.published((1, "a"), (2, "b"))
    before = raw().metadata
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} {statement}")
    if rewritten and restored != "folder":
        options = "map('rewrite-all', 'true')"
        lake.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => {options})")
    with pytest.raises(ForeignWrite, match=f"`lakeingest rollback {lake.table}` takes that back"):
        lake.open().recover(lake.table)
    found = expected(lake, rollbacks)
    assert found.restores == (restored,)
    rollbacks().roll_back(lake.table, found)
    after = raw().metadata
    assert (after.schema(), after.spec(), after.location) == (before.schema(), before.spec(), before.location)
    assert lake.seen() == [(1, "a"), (2, "b")]
    lake.publish(lake.merge(lake.loaded(), (1, None, True), (2, "B", False), pos=30))
    assert lake.seen() == [(2, "B")]


@pytest.mark.long("several writes of others")
def test_someones_compaction_alone_is_nothing_to_take_back(
    lake: Lake, rollbacks: Callable[[], Rollbacks], spark: SparkSession
) -> None:
    """On Hudi, too, where the next publish takes it back; and so with one that is only planned."""
    lake.published((1, "a"), (2, "b"))
    if lake.settings.format == "iceberg":
        options = "map('rewrite-all', 'true')"
        spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => {options})")
        assert rollbacks().found(lake.table) is None
        return
    place = lake.settings.folder(lake.table).path
    for operation in ("scheduleAndExecute", "schedule"):
        spark.sql(f"CALL run_clustering(path => '{place}', op => '{operation}')").collect()
        assert rollbacks().found(lake.table) is None
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("operation", "drops"), [("scheduleAndExecute", ["commit", "commit"]), ("schedule", ["plan", "commit"])]
)
@pytest.mark.long("several writes of others")
def test_clusterings_go_with_the_rows_of_others(
    lake: Lake,
    rollbacks: Callable[[], Rollbacks],
    insert: Others,
    spark: SparkSession,
    operation: str,
    drops: list[str],
) -> None:
    """One that is completed, and one that is planned; the table goes on."""
    if lake.settings.format == "iceberg":
        pytest.skip("there a compaction is a snapshot, which goes with the others")
    lake.published((1, "a"), (2, "b"))
    insert(lake, 98)
    spark.sql(f"CALL run_clustering(path => '{lake.settings.folder(lake.table).path}', op => '{operation}')").collect()
    found = expected(lake, rollbacks)
    assert [one.partition(" ")[0] for one in found.drops] == drops
    rollbacks().roll_back(lake.table, found)
    assert rollbacks().found(lake.table) is None
    assert lake.seen() == [(1, "a"), (2, "b")]
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (3, "c", False), pos=30))
    assert lake.seen() == [(1, "A"), (2, "b"), (3, "c")]


@pytest.mark.long("several writes of others")
def test_what_cannot_be_taken_back_is_refused_with_the_reason(
    lake: Lake, rollbacks: Callable[[], Rollbacks], insert: Others, spark: SparkSession
) -> None:
    """Where no commit of ours is left, or a cleaning of others may have removed our files."""
    if lake.settings.format == "iceberg":
        lake.published((1, "a"))
        spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} DROP BRANCH lakeingest")
        insert(lake, 98)
        expire = f"CALL {CATALOG}.system.expire_snapshots(table => '{lake.table}', retain_last => 1,"
        spark.sql(f"{expire} older_than => TIMESTAMP '2999-01-01 00:00:00')")
        with pytest.raises(ForeignWrite, match="cannot be rolled back, because it has no commit of lakeingest"):
            rollbacks().found(lake.table)
        assert lake.seen() == [(1, "a"), (98, "foreign")]
        return
    lake.published((1, "a"))
    place = lake.settings.folder(lake.table).hadoop
    options = {"hoodie.table.name": lake.table.name, "hoodie.datasource.write.recordkey.field": "id"}
    options |= {"hoodie.clean.commits.retained": "1"}
    for _ in range(4):
        rows = spark.createDataFrame([(1, "foreign")], "id int, v string")
        rows.write.format("hudi").options(**options).mode("append").save(place)
    with pytest.raises(ForeignWrite, match=r"cannot be rolled back to commit [0-9]+, because the cleaning"):
        rollbacks().found(lake.table)
