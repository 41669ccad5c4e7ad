"""The properties of an Iceberg table: those that we set, and those of users that our writers obey.

Users decide how files are compressed, and which columns have bounds. Spark lets anyone set values that PyIceberg cannot
use; these are ignored, so that no run fails. lakeingest decides the sizes of files and pages, where files are put, and
which code writes them. So nobody can use a property to send rows elsewhere, or to make this process load a class.
"""

import re
from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from lakeingest import config
from lakeingest.config.table_properties import FORMAT_VERSION, PLACES, is_usable
from lakeingest.config.tables import TableOptions

VERSION = 2  # of Iceberg's format, unless users ask for 3
PROPERTIES = {
    "write.merge.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    # with larger dictionaries, files would be larger, and take 1.5 times as long to write
    "write.parquet.dict-size-bytes": str(64 << 10),
}

_IGNORED = re.compile(
    r"write\.format\.default|write\.target-file-size-bytes|write\.summary\.partition-limit|schema\.name-mapping\.default"
    rf"|write\.parquet\.(?!compression-codec|compression-level|dict-size-bytes).*|{PLACES}"
)


def obeyed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those properties of a table that our writers obey. For all other properties PyIceberg's defaults apply."""
    obeyed = {name: value for name, value in properties.items() if not _IGNORED.fullmatch(name)}
    return {name: value for name, value in obeyed.items() if is_usable(name, value)}


def as_obeyed(metadata: TableMetadata, *, keeps_files: bool) -> TableMetadata:
    """The metadata with only the properties that our writers obey.

    With `keeps_files`, two more properties forbid every commit of ours to delete a file of the table.
    """
    properties = obeyed_properties(metadata.properties)
    kept = {"gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "false"} if keeps_files else {}
    return metadata.model_copy(update={"properties": {**properties, **kept}})


def wanted_properties(settings: config.Target, options: TableOptions, comment: str) -> dict[str, str]:
    """The properties that users ask for, and the comment of the source; not the version of the format.

    Properties for this table override those for all tables.
    """
    wanted = ({"comment": comment} if comment else {}) | settings.properties | options.properties
    return {name: value for name, value in wanted.items() if name != FORMAT_VERSION}


def wanted_version(settings: config.Target, options: TableOptions) -> int:
    """The version of Iceberg's format that users ask for."""
    return int((settings.properties | options.properties).get(FORMAT_VERSION, VERSION))
