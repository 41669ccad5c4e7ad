"""What users set as properties of a table, and what they set by mistake, ends no run."""

from pathlib import Path

import pytest

from lakeingest.lake.iceberg.tables.properties import obeyed_properties
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

HOSTILE = {
    "write.format.default": "orc",
    "write.target-file-size-bytes": "1",
    "write.summary.partition-limit": "x",
    "write.parquet.compression-codec": "lzo",
    "write.parquet.compression-level": "high",
    "write.parquet.dict-size-bytes": "-1",
    "write.parquet.page-size-bytes": "0",
    "write.parquet.page-row-limit": "0",
    "write.parquet.row-group-limit": "x",
    "write.parquet.bloom-filter-enabled.column.id": "true",
    "write.avro.compression-codec": "snappy",
    "write.metadata.metrics.default": "some",
    "write.metadata.metrics.column.v": "truncate(0)",
    "commit.retry.num-retries": "x",
    "commit.manifest-merge.enabled": "maybe",
}
HARMLESS = {
    "write.parquet.compression-codec": "gzip",
    "write.parquet.compression-level": "5",
    "write.avro.compression-codec": "zstd",
    "write.metadata.metrics.default": "truncate(4)",
    "write.object-storage.enabled": "true",
    "history.expire.max-snapshot-age-ms": "x",
    "gc.enabled": "false",
    "theirs": "x",
}


def test_unusable_properties_are_left_out() -> None:
    """Else it would end in an error, or never end; all else is heeded, unknown ones too."""
    assert obeyed_properties({**HOSTILE, "schema.name-mapping.default": "nonsense"}) == {}
    assert obeyed_properties(HARMLESS) == HARMLESS


@pytest.mark.parametrize("properties", [HOSTILE, HARMLESS], ids=["hostile", "harmless"])
def test_a_table_is_updated_with_any_properties(lake: Lake, raw: Raw, properties: dict[str, str]) -> None:
    """Rows are written as Parquet, found by their keys and published; the properties stay as they were set."""
    lake.published((1, "a" * 40), (2, "b" * 40))
    with raw().transaction() as transaction:
        transaction.set_properties(properties)
    lake.publish(lake.merge(lake.loaded(), (1, None, True), (2, "B", False), (3, "c", False), pos=30))
    assert lake.seen() == [(2, "B"), (3, "c")]
    assert properties.items() <= raw().properties.items()
    folder = Path(raw().location().removeprefix("file:"))
    assert {file.suffix for file in folder.rglob("data/**/*") if file.is_file()} <= {".parquet", ".crc"}
