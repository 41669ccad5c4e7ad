"""The folder of a new copy, by a pattern: below the warehouse, or a whole URI."""

import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator

from lakeingest.config.place import Place
from lakeingest.core.schema import TableId

_FIELD = re.compile(r"\{(\w*)\}")
_UNSAFE = re.compile(r"[^\w$-]", re.ASCII)  # PyIceberg, Spark or DuckDB change such a character in a URI
_DIGITS = 8  # of the digest behind a name whose unsafe characters were replaced


def _pattern(location: str) -> str:
    plain = _FIELD.sub("x", location)
    if set(_FIELD.findall(location)) - {"database", "table"} or re.search(r"[{}]", plain):
        raise ValueError(f"{location!r} has other fields than {{database}} and {{table}}")
    if not re.fullmatch(r"([a-z][a-z0-9]+://)?[\w$ .=/-]+", plain) or not set(plain.split("/")).isdisjoint({".", ".."}):
        raise ValueError(f"{location!r} is neither a folder below the warehouse nor a URI")
    return location.rstrip("/")


Location = Annotated[str, AfterValidator(_pattern)]


def is_of_one_table(location: str) -> bool:
    """Whether this pattern gives each table its own folder."""
    return set(_FIELD.findall(location)) == {"database", "table"}


def located(location: str, warehouse: Place, table: TableId) -> Place:
    """The folder that the pattern `location` gives a table."""
    place = Place.of(location.format(database=_safe(table.database), table=_safe(table.name)))
    return place if place.written.startswith("/") or place.scheme else Place(f"{warehouse}/{place}")


def _safe(name: str) -> str:
    """The name with `_` for characters that are not safe in a URI; a digest at its end keeps such names apart."""
    safe = _UNSAFE.sub("_", name)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"
