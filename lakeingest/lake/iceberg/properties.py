"""The properties of an Iceberg table that users may set, and those that our writes obey.

Users decide how files are compressed, and which bounds they have. Spark lets anyone set values that PyIceberg cannot
use; they must not end a run. We decide the sizes of files and pages, where they are put, and the code that writes them.
So nobody can send the rows elsewhere, or let this process load a class, by a property.
"""

import re
from collections.abc import Mapping

from lakeingest import config
from lakeingest.config.table_properties import PLACES, is_usable
from lakeingest.config.tables import TableOptions

VERSION = 2  # the version of Iceberg's format; PyIceberg does not write 3
PROPERTIES = {
    "format-version": str(VERSION),
    "write.merge.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    # larger dictionaries do not pay: files without them are smaller, and written in two thirds of the time
    "write.parquet.dict-size-bytes": str(64 << 10),
}

_IGNORED = re.compile(
    r"write\.format\.default|write\.target-file-size-bytes|write\.summary\.partition-limit|schema\.name-mapping\.default"
    rf"|write\.parquet\.(?!compression-codec|compression-level|dict-size-bytes).*|{PLACES}"
)


def obeyed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for our writers. PyIceberg's default applies for each one that is left out."""
    obeyed = {name: value for name, value in properties.items() if not _IGNORED.fullmatch(name)}
    return {name: value for name, value in obeyed.items() if is_usable(name, value)}


def with_files_kept(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties, with those set under which no commit of ours deletes a file of the table."""
    return {**properties, "gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "false"}


def wanted_properties(settings: config.Target, options: TableOptions, comment: str) -> dict[str, str]:
    """The properties that users ask for, and the comment of the source.

    A table's own properties override the common ones.
    """
    return ({"comment": comment} if comment else {}) | settings.properties | options.properties
