"""Hudi's table services in someone else's hands: what changes no row is gone on from."""

import pytest
from pyspark.sql import SparkSession

from lakeingest.files.local import Local
from lakeingest.lake.hudi.last_commit import our_last_commit
from tests.lake.steps import Lake

pytestmark = [
    pytest.mark.spark,
    pytest.mark.formats("hudi"),
    pytest.mark.long("several publishes of Hudi each"),
]


def call(lake: Lake, spark: SparkSession, procedure: str, **arguments: str) -> None:
    """Have Hudi run one of its procedures on the table."""
    given = {"path": str(lake.settings.folder(lake.table)), **arguments}
    listed = ", ".join(f"{name} => '{value}'" for name, value in given.items())
    spark.sql(f"CALL {procedure}({listed})").collect()


def last_instant(lake: Lake) -> str:
    """The commit that readers see."""
    instant = our_last_commit(lake.table, Local(lake.settings.folder(lake.table).path))
    assert instant is not None
    return instant.time


def newest_savepoint(lake: Lake) -> str:
    """The commit that someone keeps."""
    timeline = lake.settings.folder(lake.table).path / ".hoodie" / "timeline"
    return max(timeline.glob("*.savepoint")).name.partition("_")[0]


def test_a_savepoint_and_a_cleaning_are_gone_on_from(lake: Lake, spark: SparkSession) -> None:
    """Neither changes a row; what was staged before them is published."""
    lake.published((1, "a"), (2, "b"))
    call(lake, spark, "create_savepoint", commit_time=last_instant(lake))
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (3, "c", False), pos=30))
    staged = lake.merge(lake.loaded(), (2, None, True), pos=40)
    spark.sql(f"CREATE TABLE theirs USING hudi LOCATION '{lake.settings.folder(lake.table)}'")
    spark.sql(
        "CALL run_clean(table => 'theirs', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)"
    ).collect()
    spark.sql("DROP TABLE theirs")
    assert lake.loaded() == staged
    assert lake.rows(staged) == [(1, "A"), (3, "c")]
    lake.publish(staged)
    assert lake.seen() == [(1, "A"), (3, "c")]
    call(lake, spark, "delete_savepoint", instant_time=newest_savepoint(lake))
    lake.publish(lake.merge(lake.loaded(), (4, "d", False), pos=50))
    assert lake.seen() == [(1, "A"), (3, "c"), (4, "d")]


def test_a_table_that_was_rolled_back_to_a_savepoint_is_brought_forward_again(lake: Lake, spark: SparkSession) -> None:
    """Its position is that of the savepoint: the changes since then are merged again, and none is lost."""
    first = lake.published((1, "a"), (2, "b"), pos=20)
    call(lake, spark, "create_savepoint", commit_time=last_instant(lake))
    lake.publish(lake.merge(lake.loaded(), (1, "A", False), (2, None, True), (3, "c", False), pos=30))
    call(lake, spark, "rollback_to_savepoint", instant_time=newest_savepoint(lake))
    assert lake.seen() == [(1, "a"), (2, "b")]
    found = lake.loaded()
    assert (found.version, found.published) == (first.version, first.version)
    assert found.progress.position is not None
    assert found.progress.position.at.pos == 20
    assert lake.open().count(lake.table, found.version) == 2
    lake.publish(lake.merge(found, (1, "A", False), (2, None, True), (3, "c", False), pos=30))
    assert lake.seen() == [(1, "A"), (3, "c")]
