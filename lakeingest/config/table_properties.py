"""The table properties of copies: which ones users are allowed to set, and why others are refused.

A property is refused if it would break a promise of lakeingest, or if it would have no effect. Source: Iceberg's
documentation, "Configuration".
"""

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

# Properties that choose the folders of files, or name classes (of Python or Java) that choose them
PLACES = r"write\.(data|metadata|folder-storage|object-storage)\.path|write\.(py-)?location-provider\.impl"
FORMAT_VERSION = "format-version"  # of Iceberg's format: no table has it as a property, but a table is made with it
REFUSED = {  # by a regular expression for names of properties: why users cannot set these properties
    r"lakeingest\..*": "these names are lakeingest's own",
    r"uuid|snapshot-count|current-.*|default-(partition-spec|sort-order)": "Iceberg reserves this name",
    r"commit\.(retry|status-check)\..*": "a commit of lakeingest is sent again only after it was looked up",
    r"gc\.enabled": "lakeingest removes the files of old commits itself; target.history says which",
    r"history\.expire\..*": "target.history says how long commits are kept",
    r"write\.(delete|update|merge)\.mode": "lakeingest deletes rows by their positions (merge-on-read)",
    r"write\.wap\..*": "lakeingest has its own staging branch",
    r"write\.format\.default|write\.delete\.format\.default": "lakeingest writes Parquet",
    r"write\.target-file-size-bytes|write\.parquet\.(?!compression-codec|compression-level|dict-size-bytes).*": (
        "lakeingest chooses the sizes of files and pages"
    ),
    r"write\.summary\.partition-limit": "summaries of commits have no values of rows",
    r"schema\.name-mapping\.default": "columns are found by their ids",
    r"py-io-impl": "target.storage says how a store is reached",
    PLACES: "all files of a copy are in its own folder; target.location says where that is",
    r"encryption\..*": "encrypted tables are not built yet",
}
# By a regular expression for names of properties: a regular expression for the values that all writers understand
USABLE_VALUES = {
    FORMAT_VERSION: r"[23]",
    r"write\.parquet\.compression-codec": r"zstd|gzip|snappy|lz4|brotli|uncompressed",
    r"write\.parquet\.compression-level": r"[1-9]",
    r"write\.parquet\.dict-size-bytes": r"[1-9]\d{0,8}",
    r"write\.avro\.compression-codec": r"deflate|gzip|zstd|uncompressed",
    r"write\.metadata\.metrics\..*": r"none|counts|full|truncate\([1-9]\d{0,3}\)",
    r"write\.metadata\.previous-versions-max": r"[1-9]\d{0,3}",
    r"write\.(metadata\.delete-after-commit|object-storage)\.enabled": r"true|false",
    r"commit\..*": r"\d{1,9}|true|false",
}


def is_usable(name: str, value: str) -> bool:
    """Whether the writers of lakeingest understand this value; True for properties that USABLE_VALUES does not list."""
    values = _usable_values(name)
    return values is None or re.fullmatch(values, value) is not None


@functools.lru_cache(maxsize=256)  # each table that is loaded has the same names
def _usable_values(name: str) -> str | None:
    """The regular expression for the values of the property of this name; None if USABLE_VALUES does not list it."""
    return next((values for names, values in USABLE_VALUES.items() if re.fullmatch(names, name)), None)


def _values_as_texts(properties: Any) -> Any:
    """The properties with values as Iceberg stores them: numbers and booleans of YAML become texts."""
    if not isinstance(properties, Mapping):
        return properties  # pydantic reports it
    return {
        name: str(value).lower() if isinstance(value, bool | int | float) else value
        for name, value in properties.items()
    }


def _assert_allowed(properties: dict[str, str]) -> dict[str, str]:
    """The properties unchanged. Raises ValueError for a property that is refused, or has an unusable value."""
    for name, value in properties.items():
        reason = next((reason for names, reason in REFUSED.items() if re.fullmatch(names, name)), None)
        if reason is not None:
            raise ValueError(f"{name} cannot be set: {reason}")
        if not is_usable(name, value):
            raise ValueError(f"{name} cannot be {value!r}")
    return properties


Properties = Annotated[dict[str, str], BeforeValidator(_values_as_texts), AfterValidator(_assert_allowed)]
