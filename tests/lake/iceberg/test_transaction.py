"""A transaction applies each update once, and has the same metadata as PyIceberg's after each of them."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.row_delta import append_nothing
from lakeingest.lake.iceberg.storage.durable import IO
from lakeingest.lake.iceberg.storage.format_version import raise_version

NAME = ("shop", "orders")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog with a table."""
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    made = EmbeddedCatalog("lake", uri=uri, warehouse=tmp_path.as_uri(), **{"py-io-impl": IO})
    made.create_namespace(NAME[:1])
    made.create_table(NAME, Schema(NestedField(1, "id", LongType(), required=True)))
    return made


def texts(metadata: TableMetadata) -> dict[str, object]:
    """The metadata, but for the time of the last update, which is the clock's."""
    return {**metadata.model_dump(), "last-updated-ms": None}


def assert_same(transaction: Transaction, loaded: Table) -> None:
    """As PyIceberg applies all updates at once."""
    theirs = update_table_metadata(loaded.metadata, transaction._updates)  # noqa: SLF001 - as the code under test
    assert texts(transaction.table_metadata) == texts(theirs)
    assert transaction.table_metadata.last_updated_ms >= loaded.metadata.last_updated_ms


@pytest.mark.parametrize("raises_version", [False, True])
def test_metadata_are_those_of_pyiceberg_after_each_step(catalog: Catalog, raises_version: bool) -> None:  # noqa: FBT001
    """Properties, columns, snapshots on branches, and updates that depend on earlier ones of the transaction."""
    loaded = catalog.load_table(NAME)
    before = loaded.metadata.model_dump_json()
    transaction = OneTransaction(loaded)
    assert transaction.table_metadata is loaded.metadata
    if raises_version:
        raise_version(transaction)
        assert_same(transaction, loaded)
    transaction.set_properties({"a": "1"})
    assert_same(transaction, loaded)
    append_nothing(transaction, "main")
    assert_same(transaction, loaded)
    with transaction.update_schema() as update:
        update.add_column("note", StringType())
    assert_same(transaction, loaded)
    assert "note" in transaction.table_metadata.schema().column_names
    first = append_nothing(transaction, "staging")
    assert_same(transaction, loaded)
    second = append_nothing(transaction, "staging")
    assert_same(transaction, loaded)
    assert transaction.table_metadata.refs["staging"].snapshot_id == second
    transaction.set_properties({"a": "2"})
    transaction.remove_properties("a")
    assert_same(transaction, loaded)
    assert transaction.table_metadata.snapshot_by_id(first) is not None
    assert loaded.metadata.model_dump_json() == before  # no step has changed what others have


def test_metadata_are_kept_until_the_next_update(catalog: Catalog) -> None:
    """Each access would else apply all updates once more."""
    transaction = OneTransaction(catalog.load_table(NAME))
    transaction.set_properties({"a": "1"})
    assert transaction.table_metadata is transaction.table_metadata
    assert transaction.table_metadata.last_updated_ms > 0
