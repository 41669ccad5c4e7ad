"""The folder of a new copy, by a pattern: below the warehouse, or a whole URI."""

import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator

from lakeingest.config.place import Place
from lakeingest.core.schema import TableId

_FIELD = re.compile(r"\{(\w*)\}")
_UNSAFE = re.compile(r"[^\w$-]", re.ASCII)  # PyIceberg, Spark or DuckDB change such a character in a URI
_DIGITS = 8  # of the digest that tells names apart after such a change


def _pattern(given: str) -> str:
    plain = _FIELD.sub("x", given)
    if set(_FIELD.findall(given)) - {"database", "table"} or re.search(r"[{}]", plain):
        raise ValueError(f"{given!r} has other fields than {{database}} and {{table}}")
    if not re.fullmatch(r"([a-z][a-z0-9]+://)?[\w$ .=/-]+", plain) or not set(plain.split("/")).isdisjoint({".", ".."}):
        raise ValueError(f"{given!r} is neither a folder below the warehouse nor a URI")
    return given.rstrip("/")


Location = Annotated[str, AfterValidator(_pattern)]


def is_of_one_table(location: str) -> bool:
    """Whether each table has a folder of its own by this pattern."""
    return set(_FIELD.findall(location)) == {"database", "table"}


def located(location: str, warehouse: Place, table: TableId) -> Place:
    """The folder of a table by a pattern."""
    filled = Place.of(location.format(database=_safe(table.database), table=_safe(table.name)))
    return filled if filled.written.startswith("/") or filled.scheme else Place(f"{warehouse}/{filled}")


def _safe(name: str) -> str:
    """The name without characters that are not safe in a URI; a digest tells such names apart."""
    safe = _UNSAFE.sub("_", name)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"
