"""A copy belongs to one pipeline, which the table names. Any other is refused before it reads or writes the table.

Each commit asserts a value that a hand-over changes, so that no commit of the former owner takes effect: in Iceberg
where staging is, in Hudi which commit readers see.
"""

import shlex
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from lakeingest.core.ownership import Owner
from lakeingest.core.schema import TableId
from lakeingest.errors import NotOurCopy, UsageError

PIPELINE = "lakeingest.owner"  # the pipeline that a copy belongs to


def hand_over(table: TableId, owner: Owner | None = None) -> str:
    """The command, quoted for a shell, that hands a copy over to this pipeline.

    Others may have chosen the owner's name.
    """
    options = [] if owner is None else ["--from", owner.pipeline]
    return f"`{shlex.join(['lakeingest', 'adopt', *options, str(table)])}`"


def without_copy(table: TableId) -> UsageError:
    """The error for a hand-over of a table that has no copy."""
    return UsageError(f"{table} has no copy; a run makes one")


class Ownership:
    """The pipeline that works here, and whether its state folder knows the copy of a table.

    Both are asked when needed.
    """

    def __init__(self, owner: Callable[[], Owner], knows: Callable[[TableId], bool]) -> None:
        self._asked, self._knows = owner, knows

    @cached_property
    def _owner(self) -> Owner:
        return self._asked()

    def assert_ours(self, table: TableId, properties: Mapping[str, str]) -> None:
        """Raises NotOurCopy if the copy with these properties belongs to another pipeline.

        A copy of an earlier version names no pipeline. It belongs to the first one that knows it.
        """
        if PIPELINE not in properties:
            if not self._knows(table):
                raise NotOurCopy(
                    f"{table}: its copy was made by another state folder, or this one was lost since;"
                    f" {hand_over(table)} lets this pipeline go on with it, if no other one does"
                )
            return
        owner = Owner.of_text(properties[PIPELINE])
        if not owner.is_same(self._owner):
            raise NotOurCopy(
                f"{table}: its copy belongs to {owner}; when that one has ended for good,"
                f" {hand_over(table, owner)} hands the copy over to this one"
            )

    def marks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The property that a commit sets on a copy with these properties; none where it is set already."""
        text = self._owner.to_text()
        return {} if properties.get(PIPELINE) == text else {PIPELINE: text}


class Adoptions(Protocol):
    """Gives copies of other pipelines to this one."""

    def owner(self, table: TableId) -> Owner | None:
        """The owner of the copy; None where it names none. Raises UsageError where there is no copy."""

    def adopt(self, table: TableId) -> None:
        """Make this pipeline the owner. Nothing that the former owner has prepared takes effect from then on.

        Raises StaleWriter when the former owner commits at the same time.
        """
