"""Which columns of a foreign table become columns of a copy, and which are dropped: decided by their names alone."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matched:
    """How the columns of a foreign table and of a copy match.

    `origins`: for each column of the copy, the foreign column whose values it has; None if there is none. `dropped`:
    the foreign columns that the user drops. `unnamed`: the foreign columns that are neither an origin nor dropped.
    """

    origins: Mapping[str, str | None]
    dropped: tuple[str, ...]
    unnamed: tuple[str, ...]


def match(foreign: Sequence[str], wanted: Sequence[str], drop: Sequence[str]) -> Matched:
    """Match the columns of a `foreign` table with the `wanted` columns of a copy.

    `drop`: patterns of foreign columns that the user drops, with `*` and `?`; the case of letters counts. A column of
    the copy with the name of a dropped column is a new column. Names match if they are equal, or else if they differ
    only in their case.
    """
    dropped = tuple(name for name in foreign if any(fnmatch.fnmatchcase(name, pattern) for pattern in drop))
    left = [name for name in foreign if name not in dropped]
    by_folded = {name.casefold(): name for name in reversed(left)}  # reversed: the first of several names counts
    exact = set(left).intersection(wanted)
    origins: dict[str, str | None] = {}
    for name in wanted:
        in_other_case = by_folded.get(name.casefold())
        if name in exact:
            origins[name] = name
        else:  # a foreign column that has exactly the name of another wanted column becomes only that column
            origins[name] = None if in_other_case in exact else in_other_case
    used = {origin for origin in origins.values() if origin is not None}
    return Matched(origins, dropped, tuple(name for name in left if name not in used))
