"""A copy belongs to one pipeline, which the table names: any other is refused before it reads or writes the table.

Each commit that could let another pipeline take effect asserts what a hand-over changes: in Iceberg the place of
staging, in Hudi the commit that readers see.
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
    """The command that hands a copy over to this pipeline, for a shell: others may have written the owner's name."""
    before = [] if owner is None else ["--from", owner.pipeline]
    return f"`{shlex.join(['lakeingest', 'adopt', *before, str(table)])}`"


def without_copy(table: TableId) -> UsageError:
    """There is nothing to hand over."""
    return UsageError(f"{table} has no copy; a run makes one")


class Ownership:
    """The pipeline that works here, and whether its state folder knows the copy of a table; asked when it is needed."""

    def __init__(self, owner: Callable[[], Owner], knows: Callable[[TableId], bool]) -> None:
        self._asked, self._knows = owner, knows

    @cached_property
    def _owner(self) -> Owner:
        return self._asked()

    def assert_ours(self, table: TableId, properties: Mapping[str, str]) -> None:
        """NotOurCopy if the copy with these properties belongs to another pipeline.

        One that an earlier version made names none. It belongs to the first pipeline that knows it.
        """
        if PIPELINE not in properties:
            if not self._knows(table):
                raise NotOurCopy(
                    f"{table}: its copy was made by another state folder, or this one was lost since;"
                    f" {hand_over(table)} lets this pipeline go on with it, if no other one does"
                )
            return
        found = Owner.of_text(properties[PIPELINE])
        if not found.is_same(self._owner):
            raise NotOurCopy(
                f"{table}: its copy belongs to {found}; when that one has ended for good,"
                f" {hand_over(table, found)} hands the copy over to this one"
            )

    def marks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The property that a commit on a copy with these properties sets; none where it is there."""
        text = self._owner.to_text()
        return {} if properties.get(PIPELINE) == text else {PIPELINE: text}


class Adoptions(Protocol):
    """Lets this pipeline own copies of another one."""

    def owner(self, table: TableId) -> Owner | None:
        """Who owns the copy; None where it names nobody. UsageError where there is no copy."""

    def adopt(self, table: TableId) -> None:
        """Let this pipeline own it. Nothing that its owner has prepared takes effect from then on.

        StaleWriter when its owner commits at the same time.
        """
