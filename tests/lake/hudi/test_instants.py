"""The properties of commits in a Hudi timeline, if they are missing or damaged."""

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.lake.hudi.timeline import BUCKETS, KEY, VERSION, Instant
from lakeingest.lake.marks import PROGRESS

_TIME = "20261201000000000"


@pytest.mark.parametrize("properties", [{}, dict.fromkeys((BUCKETS, KEY, PROGRESS, VERSION), "?")])
def test_a_commit_whose_properties_are_missing_or_damaged_is_named(properties: dict[str, str]) -> None:
    """So a run names the commit, whichever property it needs first."""
    instant = Instant(_TIME, properties, _TIME)
    for read in (
        lambda: instant.buckets,
        lambda: instant.key,
        lambda: instant.version,
        lambda: instant.progress(TableId("shop", "orders")),
    ):
        with pytest.raises(StateUnreadable, match=_TIME):
            read()


def test_a_commit_without_partitions_has_none() -> None:
    """Commits of copies without partitions do not have this property."""
    assert Instant(_TIME, {}, _TIME).partitions == ()
