"""The load of a source beside its limits."""

import pytest

from lakeingest.core.figures.load import Load


@pytest.mark.parametrize(
    ("load", "named"),
    [
        (Load(10, 1_000, 30.0), None),
        (Load(11, 1_000, 30.0), "throttle.threads_running"),
        (Load(10, 1_001, 30.0), "throttle.history_list_length"),
        (Load(0, 0, 30.5), "throttle.replica_lag"),
        (Load(11, 1_001, 31.0), "throttle.threads_running"),
    ],
)
def test_the_first_limit_that_is_exceeded_is_named(load: Load, named: str | None) -> None:
    """A limit that is just reached is none."""
    reason = load.excess(Load(10, 1_000, 30.0))
    assert (reason is None) if named is None else (reason is not None and named in reason)


def test_a_load_without_a_limit_counts_for_nothing() -> None:
    """It is not even measured."""
    assert Load(threads_running=3).excess(Load(threads_running=10)) is None
    assert Load().excess(Load()) is None
