"""The price of a commit hardly grows with the history of its table."""

import copy
import operator
import pickle
from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.storage.metadata import with_shared_lists
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark


@pytest.fixture
def load(lake: Lake) -> Callable[[], Table]:
    """Load the table by one catalog, as a run does."""
    catalog = open_catalog(lake.settings)
    return lambda: catalog.load_table((lake.table.database, lake.table.name))


def test_a_version_of_the_metadata_is_parsed_once(lake: Lake, load: Callable[[], Table]) -> None:
    """Until the catalog names another version; each caller gets a table of its own."""
    lake.published((1, "a"))
    first, second = load(), load()
    assert first is not second
    assert first.metadata is second.metadata


def test_a_commit_of_another_client_is_seen(lake: Lake, load: Callable[[], Table], catalog: SqlCatalog) -> None:
    """Its metadata is another file."""
    lake.published((1, "a"))
    before = load()
    catalog.load_table(before.name()).transaction().set_properties({"theirs": "1"}).commit_transaction()
    assert "theirs" not in before.properties
    assert load().properties["theirs"] == "1"


def test_metadata_that_this_process_has_committed_is_as_in_its_file(lake: Lake, load: Callable[[], Table]) -> None:
    """So it need not be parsed: after commits of all kinds, and one of this catalog itself."""
    lake.published((1, "a"), (2, "b"))
    for number in range(3):
        lake.publish(lake.merge(lake.loaded(), (1, f"c{number}", False), (2, None, True), pos=30 + number))
    lake.publish(lake.open().maintain(lake.loaded()))
    load().transaction().set_properties({"theirs": "1"}).commit_transaction()
    committed = load()
    parsed = FromInputFile.table_metadata(committed.io.new_input(committed.metadata_location))
    assert committed.metadata == parsed
    assert committed.metadata.model_dump_json() == parsed.model_dump_json()
    committed.io.delete(committed.metadata_location)
    assert load().metadata is committed.metadata  # nothing was read


def test_a_table_that_was_dropped_and_made_again_is_another_one(
    lake: Lake, load: Callable[[], Table], catalog: SqlCatalog
) -> None:
    """Under the same name."""
    lake.published((1, "a"))
    before = load()
    catalog.drop_table(before.name())
    lake.published((2, "b"))
    assert load().metadata.table_uuid != before.metadata.table_uuid


def test_copies_of_metadata_share_the_history(lake: Lake, raw: Raw) -> None:
    """What is added to a copy is not in the other."""
    lake.published((1, "a"))
    loaded = raw().metadata
    shared = with_shared_lists(loaded)
    copied = copy.deepcopy(shared)
    assert copied == loaded
    assert copied.snapshots is shared.snapshots
    more = operator.add(copied.snapshots, loaded.snapshots)  # as PyIceberg adds a snapshot
    assert copy.deepcopy(more) is more
    assert len(more) == 2 * len(shared.snapshots) == 2 * len(loaded.snapshots)


def test_executors_do_not_get_the_history(lake: Lake) -> None:
    """What is sent to them is as small after many publishes as after the first."""
    staged = lake.published((1, "a"))
    before = len(pickle.dumps(lake.open().writer(lake.table)))
    for number in range(5):
        staged = lake.publish(lake.merge(staged, (1, f"a{number}", False), pos=30 + number))
    after = len(pickle.dumps(lake.open().writer(lake.table)))
    assert after <= before + 100  # the table's properties differ by a digit or two
    assert lake.seen() == [(1, "a4")]
