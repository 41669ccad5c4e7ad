"""A part of the port: publishes of several tables in one commit of the catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakeingest.core.schema import TableSchema
from lakeingest.lake.held import Auditing, unaudited

if TYPE_CHECKING:
    from lakeingest.lake.target import Staged


class Prepared(Protocol):
    """A publish of one table that is audited and ready, and that readers do not see yet."""

    def show(self) -> "Staged":
        """Let readers see this table by itself. Raises as `Publishing.publish`, but no AuditFailed."""

    def finish(self) -> "Staged":
        """Do what follows a publish that `Joint.show` has made, and return the published state."""


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """What became of a commit of several tables. `are_seen`: for each table, whether readers are known to see it now.

    `refusal`: why the catalog has not made it, although it is there and no table has moved; else ''. `is_final`: it has
    no such commits.
    """

    are_seen: Sequence[bool]
    refusal: str = ""
    is_final: bool = False


class Joint(Protocol):
    """Publishes several tables in one commit of the catalog, which asserts all that their own commits would assert."""

    def prepare(
        self, staged: "Staged", schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Prepared:
        """Check and audit a commit for its publish, as `Publishing.publish` does, with the same errors.

        Readers must see an earlier commit of the table: a table without a publish gets its first by `publish`.
        """

    def show(self, prepared: Sequence[Prepared]) -> JointAnswer:
        """Let readers see all these tables at once.

        None is seen, for example, if someone else has changed one of them. A table that is not known to be seen is then
        shown by itself: `Prepared.show` is exact even if the commit of all tables takes effect later.
        """
