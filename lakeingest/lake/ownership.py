"""Ownership: each copy belongs to one pipeline, which a property of the table names.

Any other pipeline is refused before it reads or writes the table. A hand-over changes a value that every commit
asserts: in Iceberg the snapshot that staging is at, in Hudi the commit that readers see. So no commit that the former
owner has prepared takes effect after the hand-over.
"""

import shlex
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import NotOurCopy, UsageError

PIPELINE = "lakeingest.owner"  # the pipeline that a copy belongs to


def hand_over(table: TableId, owner: Owner | None = None) -> str:
    """The command that hands a copy over from `owner` to this pipeline. `owner` is None if the copy names no owner.

    The command is quoted for a shell, because other people may have chosen the owner's name.
    """
    options = [] if owner is None else ["--from", owner.pipeline]
    return f"`{shlex.join(['lakeingest', 'adopt', *options, str(table)])}`"


def without_copy(table: TableId) -> UsageError:
    """The error for a hand-over of a table that has no copy."""
    return UsageError(f"{table} has no copy; a run makes one")


class Ownership:
    """Compares the owners of copies with the pipeline that works here.

    `owner` returns this pipeline; `knows` says whether its state folder knows the copy of a table. Both functions are
    called only when their results are needed.
    """

    def __init__(self, owner: Callable[[], Owner], knows: Callable[[TableId], bool]) -> None:
        self._load_owner, self._knows = owner, knows

    @cached_property
    def _owner(self) -> Owner:
        return self._load_owner()

    def assert_ours(self, table: TableId, properties: Mapping[str, str]) -> None:
        """Raises NotOurCopy if the copy with these properties belongs to another pipeline.

        A copy that an earlier version of lakeingest made names no pipeline. Such a copy is ours if our state folder
        knows the table.
        """
        if PIPELINE not in properties:
            if self._knows(table):
                return
            raise NotOurCopy(
                f"{table}: its copy was made by another state folder, or this one was lost since;"
                f" {hand_over(table)} lets this pipeline go on with it, if no other one does"
            )
        owner = Owner.of_text(properties[PIPELINE])
        if not owner.is_same(self._owner):
            raise NotOurCopy(
                f"{table}: its copy belongs to {owner}; when that one has ended for good,"
                f" {hand_over(table, owner)} hands the copy over to this one"
            )

    def marks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The property that makes this pipeline the owner of a copy; empty if the copy's `properties` have it."""
        text = self._owner.to_text()
        return {} if properties.get(PIPELINE) == text else {PIPELINE: text}


class Adoptions(Protocol):
    """Takes over copies of other pipelines for this pipeline."""

    def owner(self, table: TableId) -> Owner | None:
        """The owner of the copy; None if the copy names none. Raises UsageError if there is no copy."""

    def adopt(self, table: TableId) -> None:
        """Make this pipeline the owner. From then on, no commit that the former owner has prepared takes effect.

        The caller has asked `owner`, which finds out whether there is a copy. Raises StaleWriter if the former owner
        commits at the same time.
        """
