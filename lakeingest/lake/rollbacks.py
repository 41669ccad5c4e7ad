"""The port for rollbacks, which each lake format implements: readers see our last published commit again.

No method needs Spark or the source.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from lakeingest.core.tables.schema import TableId


@dataclass(frozen=True, slots=True)
class Rollback:
    """The effects of a rollback. It takes back the changes that others made to a table.

    `shows` names our commit that readers see again; `version` is its number, as in `Staged.published`. `drops` names
    the commits of others that readers no longer see, the newest first. `restores` names other parts of the table that
    become what they were, for example its columns.
    """

    shows: str
    version: int
    drops: tuple[str, ...]
    restores: tuple[str, ...] = ()

    def with_interrupted(self, document: Any) -> Self:
        """A rollback that also lists what an interrupted rollback to the same commit has already done.

        `document` has the JSON of the interrupted rollback. Any other document adds nothing.
        """
        interrupted = self.of_json(document)
        if interrupted is None or interrupted.shows != self.shows:
            return self
        drops = tuple(dict.fromkeys((*self.drops, *interrupted.drops)))
        restores = tuple(dict.fromkeys((*self.restores, *interrupted.restores)))
        return replace(self, drops=drops, restores=restores)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `of_json` reads back."""
        return {
            "shows": self.shows,
            "version": self.version,
            "drops": list(self.drops),
            "restores": list(self.restores),
        }

    @classmethod
    def of_json(cls, doc: Any) -> Self | None:
        """The inverse of `to_json`; None for any other document."""
        try:
            drops = tuple(map(str, doc["drops"]))
            restores = tuple(map(str, doc["restores"]))
            return cls(str(doc["shows"]), int(doc["version"]), drops, restores)
        except (KeyError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        drops = f"; dropped: {', '.join(self.drops)}" if self.drops else ""
        restores = f"; as before: {', '.join(self.restores)}" if self.restores else ""
        return f"readers see {self.shows} again{drops}{restores}"


class Rollbacks(Protocol):
    """Finds what others changed in copies, and takes it back."""

    def found(self, table: TableId) -> Rollback | None:
        """The rollback after which a run can continue; None if nobody else changed the table, or there is none.

        Nothing is changed.

        Raises:
            NotOurTable, NotOurCopy: someone else, or another pipeline, made the table.
            ForeignWrite: the changes of others cannot be taken back, with the reason.

        """

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Do the rollback `wanted`. Readers never see a commit of ours other than `wanted.shows`.

        An interrupted rollback can be repeated. Raises StaleWriter if someone has committed since `found` returned
        `wanted`.
        """
