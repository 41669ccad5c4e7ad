"""Properties of an Iceberg table that users may set, and which of them our writes obey.

Users decide where files are, how they are compressed, and which bounds they have. Spark lets anyone set values that
PyIceberg cannot use; they must not end a run. Sizes of files and pages are ours.
"""

import re
import uuid
from collections.abc import Mapping

from lakeingest import config
from lakeingest.core.schema import TableId

VERSION = 2  # of Iceberg's format; PyIceberg does not write 3
PROPERTIES = {
    "format-version": str(VERSION),
    "write.merge.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    # larger dictionaries do not pay: files without them are smaller, and written in two thirds of the time
    "write.parquet.dict-size-bytes": str(64 << 10),
}
_OURS = re.compile(
    r"write\.format\.default|write\.target-file-size-bytes|write\.summary\.partition-limit|schema\.name-mapping\.default"
    r"|write\.parquet\.(?!compression-codec|compression-level|dict-size-bytes).*"
)
_USABLE = {
    r"write\.parquet\.compression-codec": r"zstd|gzip|snappy|lz4|brotli|uncompressed",
    r"write\.parquet\.compression-level": r"[1-9]",
    r"write\.parquet\.dict-size-bytes": r"[1-9]\d{0,8}",
    r"write\.avro\.compression-codec": r"deflate|gzip|zstd|uncompressed",
    r"write\.metadata\.metrics\..*": r"none|counts|full|truncate\([1-9]\d{0,3}\)",
    r"commit\..*": r"\d{1,9}|true|false",
}


def usable(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for our writers; for those that are left out, PyIceberg's default applies."""
    return {name: value for name, value in properties.items() if not _OURS.fullmatch(name) and _is_usable(name, value)}


def _is_usable(name: str, value: str) -> bool:
    known = next((values for names, values in _USABLE.items() if re.fullmatch(names, name)), None)
    return known is None or re.fullmatch(known, value) is not None


def new_location(settings: config.Target, table: TableId) -> str:
    """A new folder for a table, of characters that PyIceberg, Spark and DuckDB do not change in a URI."""
    namespace, name = (re.sub(r"[^\w$-]", "_", part, flags=re.ASCII) for part in settings.identifier(table))
    return f"{settings.warehouse.uri}/{namespace}/{name}-{uuid.uuid4().hex[:8]}"
