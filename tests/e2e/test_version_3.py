"""Whole runs whose copies have version 3 of Iceberg's format; LAKEINGEST_VERSION=3 gives it to all other cases, too."""

from collections.abc import Callable

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe
from tests.e2e.test_audits import (
    test_a_fault_of_a_writer_is_found_before_readers_see_it,
    test_rows_that_the_binlog_does_not_have_are_no_fault,
)
from tests.e2e.test_metadata_columns import (
    soft,
    test_deleted_rows_stay_with_their_last_values_and_each_row_says_where_it_is_from,
)
from tests.e2e.test_run import (
    test_a_merge_between_waves_leaves_later_chunks_alone,
    test_a_merge_in_many_ranges_is_exact,
    test_changes_between_runs_are_applied,
    test_changes_during_a_run_are_caught,
    test_every_type_is_copied_and_verified,
)

__all__ = [  # tests of other files, and a fixture of theirs
    "soft",
    "test_a_fault_of_a_writer_is_found_before_readers_see_it",
    "test_a_merge_between_waves_leaves_later_chunks_alone",
    "test_a_merge_in_many_ranges_is_exact",
    "test_changes_between_runs_are_applied",
    "test_changes_during_a_run_are_caught",
    "test_deleted_rows_stay_with_their_last_values_and_each_row_says_where_it_is_from",
    "test_every_type_is_copied_and_verified",
    "test_rows_that_the_binlog_does_not_have_are_no_fault",
]

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.long("what others show on version 2")]


@pytest.fixture
def pipe_on(pipe_on: Callable[..., Pipe]) -> Callable[..., Pipe]:
    """Call it with a server, and options for all tables: a pipeline with copies of version 3."""

    def make(server: LocalServer, **options: object) -> Pipe:
        pipe = pipe_on(server, **options)
        changed = {"properties": {"format-version": "3"}, "merge": "row_delta"}
        pipe.config = pipe.config.model_copy(update={"target": pipe.config.target.model_copy(update=changed)})
        return pipe

    return make
