"""What the stages of a run ask of the companions of its copies. The classes in `companions/` do it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.spool import Spool


class CompanionTables(Protocol):
    """The companions of a run's tables (`core.companions.companion`)."""

    def catch_up(self, tables: Iterable[TableRun]) -> bool:
        """Write what readers of these tables see and the companions lack. Returns whether anything was written.

        An error is reported, and kept for `status` until the companion goes on. It raises only LeaseLost.
        """

    def tidy(self, tables: Iterable[TableRun], stopping: Callable[[], bool], at_most: int | None = None) -> bool:
        """Once a day (UTC), tidy each companion of these tables that lacks nothing, also if its table is quiet.

        If `stopping` says so, or if `at_most` companions were tidied in this call, the others are left to a later call.
        Returns whether something was done; `hold` notes it. Errors are reported and kept as in `catch_up`.
        """

    def errors_of(self, table: TableRun) -> Mapping[str, str]:
        """For each companion of the table, by its key of pipeline.yml, the name of the error for which it stands still.

        '' if it goes on.
        """

    def hold(self, spool: Spool) -> None:
        """Before the spool forgets changes: let the archive keep those that companions have still to read."""


class NoCompanions:
    """A run without companions."""

    def catch_up(self, tables: Iterable[TableRun]) -> bool:  # noqa: ARG002 - as the protocol says
        """Nothing is written."""
        return False

    def tidy(
        self,
        tables: Iterable[TableRun],  # noqa: ARG002 - as the protocol says
        stopping: Callable[[], bool],  # noqa: ARG002 - as the protocol says
        at_most: int | None = None,  # noqa: ARG002 - as the protocol says
    ) -> bool:
        """Nothing is tidied."""
        return False

    def errors_of(self, table: TableRun) -> Mapping[str, str]:  # noqa: ARG002 - as the protocol says
        """There are none."""
        return {}

    def hold(self, spool: Spool) -> None:
        """Nothing is kept."""
