"""The key `location`: the pattern for the folder of a new copy. It is a path in the warehouse, or a whole URI."""

import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator

from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId

_FIELD = re.compile(r"\{(\w*)\}")
_UNSAFE = re.compile(r"[^\w$-]", re.ASCII)  # characters that PyIceberg, Spark or DuckDB change in a URI
_DIGITS = 8  # the digits of the digest at the end of a name in which characters were replaced


def _checked_pattern(location: str) -> str:
    """The pattern without a slash at its end. Raises ValueError for a malformed pattern."""
    plain = _FIELD.sub("x", location)  # the same path or URI, with a plain name in the place of each field
    unknown_fields = set(_FIELD.findall(location)) - {"database", "table"}
    has_other_braces = re.search(r"[{}]", plain) is not None
    if unknown_fields or has_other_braces:
        raise ValueError(f"{location!r} has other fields than {{database}} and {{table}}")
    has_dot_parts = not set(plain.split("/")).isdisjoint({".", ".."})
    is_path_or_uri = re.fullmatch(r"([a-z][a-z0-9]+://)?[\w$ .=/-]+", plain) is not None
    if has_dot_parts or not is_path_or_uri:
        raise ValueError(f"{location!r} is neither a folder below the warehouse nor a URI")
    return location.rstrip("/")


Location = Annotated[str, AfterValidator(_checked_pattern)]


def is_of_one_table(location: str) -> bool:
    """Whether each table gets a different folder from this pattern: it has the fields of database and table."""
    return set(_FIELD.findall(location)) == {"database", "table"}


def folder_of(location: str, warehouse: Place, table: TableId) -> Place:
    """The folder that the pattern `location` gives to a table. A relative path is taken from the warehouse."""
    place = Place.of(location.format(database=_uri_safe(table.database), table=_uri_safe(table.name)))
    is_absolute = place.written.startswith("/") or place.scheme is not None
    return place if is_absolute else Place(f"{warehouse}/{place}")


def _uri_safe(name: str) -> str:
    """The name with `_` for each character that is not safe in a URI.

    A changed name gets a digest at its end, so that two names that differ only in such characters stay different.
    """
    safe = _UNSAFE.sub("_", name)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"
