"""Validity: where and when each version of a row begins and ends, for a table with the history of a table.

A version begins with a change of its row, and ends with the next change of its key. If nobody knows since when a
row has had its values, its version begins where the row was read. So a history never says that a row was valid where
nobody has seen it.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Generic, TypeVar

from lakeingest.core.tables.change import RowKind

Row = TypeVar("Row")
KeyValues = tuple[Any, ...]  # the values of a key's columns


class Begun(enum.StrEnum):
    """How a version began. After COPY and CORRECTION, the row may have been so earlier: nobody knows since when."""

    INSERT = "insert"
    UPDATE = "update"
    COPY = "copy"  # the row was in the copy of the table with which the history begins
    CORRECTION = "correction"  # the row was read again, and was not as the history had it


class Ended(enum.StrEnum):
    """Why a version ended."""

    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    CORRECTION = "correction"  # the row was read again, and was not as the history had it
    GAP = "gap"  # the history ended there; nobody knows how long the row stayed so


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a version begins or ends. `position`: a position of the changelog as a text, which sorts.

    `at`: a time that never goes back from one position to a later one (`in_order`), in µs since 1970. `gtid`: that of
    the transaction; None without one.
    """

    position: str
    at: int
    gtid: str | None = None


@dataclass(frozen=True, slots=True)
class Version(Generic[Row]):
    """A row, from where it begins to where it ends. It is current while it has no end.

    `is_stored`: the history in the lake has the version, but without its end.
    """

    key: KeyValues
    row: Row
    begins: Moment
    begun_by: Begun
    ends: Moment | None = None
    ended_by: Ended | None = None
    is_stored: bool = False

    def ended(self, moment: Moment, by: Ended) -> "Version[Row]":
        """The same version with this end."""
        return replace(self, ends=moment, ended_by=by)


@dataclass(frozen=True, slots=True)
class Change(Generic[Row]):
    """What happens to a key. `row`: the new row of the key; it may be anything if the change is a delete.

    `is_reread`: the row was read again, so that it may be the same as before; it is no change of the source.
    """

    key: KeyValues
    kind: RowKind
    row: Row
    moment: Moment
    is_reread: bool = False


def fold(
    current: Mapping[KeyValues, Version[Row]],
    changes: Iterable[Change[Row]],
    same: Callable[[Row, Row], bool],
) -> list[Version[Row]]:
    """The versions that the changes begin or end, each once: the ended ones in the order of their ends, then the rest.

    `current` has the stored current version of each changed key that has one. The changes are in order. `same` tells if
    two rows are equal: a row that was read again, and equals the row of the current version, changes nothing.

    A key has one current version at most: a new version ends the version before it. A change that deletes a key without
    a version changes nothing, as in a copy.
    """
    open_versions, folded = dict(current), list[Version[Row]]()
    for change in changes:
        before = open_versions.get(change.key)
        if not change.kind.is_delete and before is not None and change.is_reread and same(before.row, change.row):
            continue
        if before is not None:
            folded.append(before.ended(change.moment, _why(change)))
            del open_versions[change.key]
        if not change.kind.is_delete:
            open_versions[change.key] = Version(change.key, change.row, change.moment, _how(change))
    return [*folded, *(version for version in open_versions.values() if not version.is_stored)]


def _how(change: Change[Row]) -> Begun:
    """How the version that the change brings has begun."""
    if change.is_reread:
        return Begun.CORRECTION
    return Begun.INSERT if change.kind is RowKind.INSERT else Begun.UPDATE


def _why(change: Change[Row]) -> Ended:
    """Why the version before the change has ended."""
    if change.is_reread:
        return Ended.CORRECTION
    return Ended.DELETE if change.kind is RowKind.DELETE else Ended.UPDATE


def in_order(times: Iterable[int], latest: int) -> Iterator[int]:
    """The times of changes in the order of their positions, none before `latest` or before an earlier change's time.

    The clocks of servers can go back, and connections can set the time. So a change whose time is before that of an
    earlier change gets the earlier change's time. Then the rows as of a time are the rows as of one position:
    that of the last change that has this time or an earlier one.
    """
    following = accumulate(times, max, initial=latest)
    next(following)  # the first one is `latest` itself
    return following
