"""Whole runs that merge by Spark's MERGE INTO; LAKEINGEST_MERGE=statement runs all other cases so, too."""

from collections.abc import Callable

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe
from tests.e2e.test_keys import test_a_copy_goes_on_where_it_was_broken_off
from tests.e2e.test_metadata_columns import (
    soft,
    test_deleted_rows_stay_with_their_last_values_and_each_row_says_where_it_is_from,
)
from tests.e2e.test_run import (
    test_a_merge_between_waves_leaves_later_chunks_alone,
    test_a_merge_in_many_ranges_is_exact,
    test_changes_between_runs_are_applied,
    test_changes_during_a_run_are_caught,
    test_days_before_the_gregorian_calendar_are_exact,
    test_every_type_is_copied_and_verified,
)

__all__ = [  # tests of other files, and a fixture of theirs
    "soft",
    "test_a_copy_goes_on_where_it_was_broken_off",
    "test_a_merge_between_waves_leaves_later_chunks_alone",
    "test_a_merge_in_many_ranges_is_exact",
    "test_changes_between_runs_are_applied",
    "test_changes_during_a_run_are_caught",
    "test_days_before_the_gregorian_calendar_are_exact",
    "test_deleted_rows_stay_with_their_last_values_and_each_row_says_where_it_is_from",
    "test_every_type_is_copied_and_verified",
]

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.long("the other way to merge")]


@pytest.fixture
def pipe_on(pipe_on: Callable[..., Pipe]) -> Callable[..., Pipe]:
    """Call it with a server, and options for all tables: a pipeline that merges by statement."""

    def make(server: LocalServer, **options: object) -> Pipe:
        pipe = pipe_on(server, **options)
        target = pipe.config.target.model_copy(update={"merge": "statement"})
        pipe.config = pipe.config.model_copy(update={"target": target})
        return pipe

    return make
