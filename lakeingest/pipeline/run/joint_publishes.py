"""What a run knows about its publishes of several tables at once. Only the run's own thread changes it."""

from dataclasses import dataclass, field

from lakeingest.core.copies.joint import Limit
from lakeingest.core.tables.schema import TableId


@dataclass(slots=True)
class JointPublishes:
    """`limit`: how many tables one commit may have. `unshown`: merged tables whose publish an error has prevented.

    `unshown` tables take part in the next joint publish, even if they have no changes since.
    """

    limit: Limit = field(default_factory=Limit)
    unshown: set[TableId] = field(default_factory=set)
