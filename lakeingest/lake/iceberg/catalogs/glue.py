"""The catalog of Glue. Each request is sent once.

botocore would repeat a request. If the first request of a commit took effect and its answer was lost, the second would
be refused, and the commit would seem to have failed.
"""

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from lakeingest.lake.iceberg.catalogs.places import FixedLocations
from lakeingest.lake.iceberg.storage.format_version import writable
from lakeingest.lake.iceberg.tables.times import OrderedCatalog


class OrderedGlueCatalog(OrderedCatalog, FixedLocations, GlueCatalog):
    """PyIceberg's client of Glue."""

    @staticmethod
    def _write_metadata_no_exist_check(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        """Write a metadata.json of any version of the format to an S3 table bucket."""
        GlueCatalog._write_metadata_no_exist_check(writable(metadata), io, metadata_path)  # noqa: SLF001


def glue_catalog(name: str, properties: dict[str, str]) -> GlueCatalog:
    """PyIceberg's client of Glue. Raises ModuleNotFoundError without boto3."""
    once: dict[str, object] = {"glue.max-retries": 0}  # a number: botocore takes no text
    return OrderedGlueCatalog(name, **{**properties, **once})
