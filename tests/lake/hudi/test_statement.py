"""Publishes by Hudi's MERGE INTO: the contract of every target, which runs by files of ours elsewhere."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.core.tables.schema import Column, TableId, TableSchema
from lakeingest.lake.formats import open_target
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.hudi.test_read_back import test_other_readers_find_the_same_rows
from tests.lake.hudi.test_record_key import test_a_table_has_any_key
from tests.lake.hudi.test_target import (
    test_a_publish_takes_effect_once_if_its_answer_is_lost,
    test_an_interrupted_first_publish_is_repeated,
    test_an_interrupted_merge_is_repeated,
    test_every_publish_has_its_marks,
    test_the_merges_between_two_publishes_are_one_commit,
)
from tests.lake.steps import PLAIN, Lake
from tests.lake.test_target import (
    test_a_composite_key_merges_by_all_its_columns,
    test_a_copy_that_starts_over_has_only_its_new_rows,
    test_a_crash_within_the_first_publish_is_finished,
    test_a_merge_upserts_and_deletes,
    test_a_publish_is_refused_when_another_one_was_first,
    test_publishing_shows_exactly_the_audited_commit,
    test_text_booleans_and_vectors_are_copied_and_merged,
)

__all__ = [  # tests of other files, which run here by statement
    "test_a_composite_key_merges_by_all_its_columns",
    "test_a_copy_that_starts_over_has_only_its_new_rows",
    "test_a_crash_within_the_first_publish_is_finished",
    "test_a_merge_upserts_and_deletes",
    "test_a_publish_is_refused_when_another_one_was_first",
    "test_a_publish_takes_effect_once_if_its_answer_is_lost",
    "test_a_table_has_any_key",
    "test_an_interrupted_first_publish_is_repeated",
    "test_an_interrupted_merge_is_repeated",
    "test_every_publish_has_its_marks",
    "test_other_readers_find_the_same_rows",
    "test_publishing_shows_exactly_the_audited_commit",
    "test_text_booleans_and_vectors_are_copied_and_merged",
    "test_the_merges_between_two_publishes_are_one_commit",
]

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi"), pytest.mark.long("the other way to merge")]


@pytest.fixture
def lake_of(lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table with these columns and this key, whose publishes are statements."""
    target = lake_config.target.model_copy(update={"merge": "statement"})
    config = lake_config.model_copy(update={"target": target})

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Lake:
        schema = TableSchema(TableId("contract", f"t{next(numbers)}"), columns, key)
        return Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make
