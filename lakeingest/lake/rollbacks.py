"""The port for rollbacks, which each lake format implements: readers see the last published commit of lakeingest again.

No method needs Spark, or asks the source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from lakeingest.core.schema import TableId


@dataclass(frozen=True, slots=True)
class Rollback:
    """The changes of others to a table that are taken back.

    `shows` is our commit that readers see again, `version` its number in `Staged.published`. `drops` are the commits of
    someone else that they no longer see, the newest first. `restores` names other things that become what they were.
    """

    shows: str
    version: int
    drops: tuple[str, ...]
    restores: tuple[str, ...] = ()

    def after(self, begun: Any) -> Self:
        """The same rollback with the parts that an interrupted one had done, and stored in the document `begun`."""
        interrupted = self.of_json(begun)
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
            fields: Mapping[str, Any] = doc
            lists: Sequence[Sequence[str]] = fields["drops"], fields["restores"]
            drops, restores = (tuple(map(str, texts)) for texts in lists)
            return cls(str(fields["shows"]), int(fields["version"]), drops, restores)
        except (KeyError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        drops = f"; dropped: {', '.join(self.drops)}" if self.drops else ""
        restores = f"; as before: {', '.join(self.restores)}" if self.restores else ""
        return f"readers see {self.shows} again{drops}{restores}"


class Rollbacks(Protocol):
    """Takes back what others did to copies."""

    def found(self, table: TableId) -> Rollback | None:
        """The changes to take back, so that a run can go on; None where nobody else changed the table. Changes nothing.

        Raises NotOurTable when someone else made the table; ForeignWrite, with the reason, when it cannot be taken
        back.
        """

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Take back the changes `wanted`. Readers never see another commit of ours than the one that it names.

        It may be interrupted and begun again. Raises StaleWriter when someone committed after the answer of `found`.
        """
