"""What a rollback asks of a lake format: readers see the last published commit of lakeingest again.

One file implements it for each format. Nothing takes Spark, and nothing of the source is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from lakeingest.core.schema import TableId


@dataclass(frozen=True, slots=True)
class Rollback:
    """What is taken back of a table.

    `shows` is the commit of ours that readers see again, `version` its number in `Staged.published`. `drops` are the
    commits of someone else that they see no longer, the newest first, and `restores` what else becomes as it was.
    """

    shows: str
    version: int
    drops: tuple[str, ...]
    restores: tuple[str, ...] = ()

    def after(self, begun: Any) -> Self:
        """With the commits that an interrupted rollback had dropped, and stored in this document."""
        before = self.of_json(begun)
        if before is None or before.shows != self.shows:
            return self
        parts = ((*mine, *theirs) for mine, theirs in ((self.drops, before.drops), (self.restores, before.restores)))
        drops, restores = (tuple(dict.fromkeys(part)) for part in parts)
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
        """The inverse of `to_json`; None for anything else."""
        try:
            given: Mapping[str, Any] = doc
            lists: Sequence[Sequence[str]] = given["drops"], given["restores"]
            drops, restores = (tuple(map(str, one)) for one in lists)
            return cls(str(given["shows"]), int(given["version"]), drops, restores)
        except (KeyError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        drops = f"; dropped: {', '.join(self.drops)}" if self.drops else ""
        restores = f"; as before: {', '.join(self.restores)}" if self.restores else ""
        return f"readers see {self.shows} again{drops}{restores}"


class Rollbacks(Protocol):
    """Takes back what others did to copies."""

    def found(self, table: TableId) -> Rollback | None:
        """What is to be taken back for the table to go on; None where nobody else changed it. Nothing is changed.

        NotOurTable when someone else made the table; ForeignWrite when it cannot be taken back, with the reason.
        """

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Take it back. Readers never see another commit of ours than `wanted` names.

        It may be interrupted and begun again. StaleWriter when someone committed since `found` has answered.
        """
