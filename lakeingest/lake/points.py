"""The port for points (`core.copies.points`), which each lake format implements: a version of a copy is kept by name.

No method changes a row, or needs Spark or the source. Each can be repeated.
"""

from typing import Protocol

from lakeingest.core.copies.points import KeptVersion
from lakeingest.core.tables.schema import TableId


class Points(Protocol):
    """Keeps versions that readers see, and lets them go."""

    def keep(self, table: TableId, version: int, name: str) -> KeptVersion:
        """Keep a published version under this name, until `release`.

        Raises StaleWriter if the version cannot be read any more, and UsageError if another tag or branch has the name.
        Savepoints of Hudi have no name of their own, so no name is taken there.
        """

    def release(self, table: TableId, kept: KeptVersion, name: str) -> None:
        """End what `keep` has done: the version `kept` can expire again. Nothing happens if it is not kept any more."""
