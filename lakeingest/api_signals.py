"""What a program asks of the copies of a pipeline: signals, and rows in quarantine. `Pipeline` has these methods."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from lakeingest.config import Config

# The commands are imported when they are called, because the libraries that they import take seconds to load.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeingest.commands.adopt import AdoptedTables
    from lakeingest.commands.points import KeptPoints, ShownPoint
    from lakeingest.commands.quarantine import KeptKeys
    from lakeingest.commands.signal import SignalResults
    from lakeingest.pipeline.events import Observer


class SignalMethods(ABC):
    """The methods of `Pipeline` that store signals and wait for them, and the methods for rows in quarantine."""

    config: Config

    @abstractmethod
    def _session(self) -> "AbstractContextManager[SparkSession | None]":
        """The session of Spark that was given to the pipeline; None if none was given."""

    def resnapshot(
        self,
        table: str,
        *others: str,
        where: str | None = None,
        keys: Sequence[Any] | None = None,
        from_: Any = None,
        to: Any = None,
        gap: bool = False,
        wait: bool = True,
        observe: "Observer | None" = None,
    ) -> "SignalResults":
        """Read rows of tables again: all rows, those that `where` selects, or those with keys in `keys` or [from_, to).

        With `gap`, all rows of tables whose changes are lost are compared, and the rows that differ are copied. A key
        is a value of the key's column, or a list of values in the order of the key's columns. With keys, only one table
        can be named.

        A re-snapshot is a signal for each table. A run that is at work carries out the signals; without such a run,
        this call does. The call returns when readers see the rows. With `wait=False`, the call only stores the signals.
        """
        from lakeingest.commands.resnapshot import scope_of

        tables = table, *others
        scope = scope_of(self.config, tables, where=where, keys=keys, start=from_, stop=to, gap=gap)
        return self._send_signal("resnapshot", tables, wait=wait, scope=scope, observe=observe)

    def pause(self, *tables: str, wait: bool = True) -> "SignalResults":
        """Keep tables at their positions until `resume`: nothing of them is read, merged or published."""
        return self._send_signal("pause", tables, wait=wait)

    def resume(self, *tables: str, wait: bool = True) -> "SignalResults":
        """Let paused tables go on, in the run that is at work or in the next run."""
        return self._send_signal("resume", tables, wait=wait)

    def cancel(self, *tables: str, wait: bool = True) -> "SignalResults":
        """Cancel the unfinished re-snapshots of tables. Rows that are merged already stay in the copies."""
        return self._send_signal("cancel", tables, wait=wait)

    def rollback(self, table: str, *others: str, wait: bool = True) -> "SignalResults":
        """Let readers see the last commit of lakeingest again, after someone else has changed the tables.

        The `result` of each signal lists the dropped commits. Afterwards the tables go on, in the run that is at work
        or in the next run.
        """
        return self._send_signal("rollback", (table, *others), wait=wait)

    def adopt(self, *tables: str, from_: str | None = None) -> "AdoptedTables":
        """Hand copies of the pipeline named `from_` over to this pipeline. Later runs of `from_` cannot change them."""
        from lakeingest.commands.adopt import adopt

        return adopt(self.config, tables, from_)

    def approve(self, table: str, *, wait: bool = True) -> "SignalResults":
        """Let a table follow the DDL for whose approval it waits, with `schema: {changes: approve}`.

        `status` names this DDL. Each later DDL has to be approved, too.
        """
        from lakeingest.commands.approve import waiting_ddl

        return self._send_signal("approve", (table,), wait=wait, ddl=waiting_ddl(self.config, table))

    def maintain(self, *tables: str, wait: bool = True, observe: "Observer | None" = None) -> "SignalResults":
        """Rewrite small files into larger ones, and remove old snapshots and the files that killed tasks have left."""
        return self._send_signal("maintain", tables, wait=wait, observe=observe)

    def points(self) -> "KeptPoints":
        """The points that are kept: places in the binlog as of which readers can see all tables. Needs no Spark."""
        from lakeingest.commands.points import points

        return points(self.config)

    def point(self, name: str) -> "ShownPoint":
        """The version of each table at a point, and how engines read it. Needs no Spark."""
        from lakeingest.commands.points import shown_point

        return shown_point(self.config, name)

    def create_point(self, name: str, *, wait: bool = True) -> "SignalResults":
        """Keep the version of each copy as of now, under this name.

        The run that is at work does so. If no run is at work, this call starts one, which first catches up. With
        `wait=False`, the call only stores a signal: for the run that is at work, or else for the next run.
        """
        from lakeingest.commands.points import create_point

        with self._session() as session:
            results = create_point(self.config, name, wait=wait, spark=session)
        results.raise_failure()
        return results

    def drop_point(self, name: str, *, wait: bool = True) -> "SignalResults":
        """Let the versions of a point go: the run that is at work does so, or else this call. Needs no Spark.

        With `wait=False`, the call only stores a signal.
        """
        from lakeingest.commands.points import drop_point

        results = drop_point(self.config, name, wait=wait)
        results.raise_failure()
        return results

    def quarantined(self, *tables: str) -> "KeptKeys":
        """The keys whose rows failed a gate and are not in the copies. Needs no Spark."""
        from lakeingest.commands.quarantine import listed

        return listed(self.config, tables)

    def evidence(self, table: str) -> "KeptKeys":
        """The rows of a table as they were when they failed a gate, even if their keys have left the quarantine."""
        from lakeingest.commands.quarantine import shown

        return shown(self.config, table)

    def release(
        self, table: str, keys: Sequence[Any] = (), *, wait: bool = True, observe: "Observer | None" = None
    ) -> "SignalResults":
        """Read the rows of `keys` again; if `keys` is empty, the rows of all keys in quarantine.

        A row that is sound now is published. A row that fails again stays in quarantine.
        """
        from lakeingest.commands.quarantine import release
        from lakeingest.pipeline.events import unobserved

        with self._session() as session:
            results = release(self.config, table, keys, wait=wait, observe=observe or unobserved, spark=session)
        results.raise_failure()
        return results

    def drop_evidence(self, table: str) -> int:
        """Remove the evidence of keys that have left the quarantine. Returns the number of rows that were removed."""
        from lakeingest.commands.quarantine import drop

        return drop(self.config, table)

    def _send_signal(
        self,
        action: str,
        tables: Sequence[str],
        *,
        wait: bool,
        scope: Any = None,
        ddl: str | None = None,
        observe: "Observer | None" = None,
    ) -> "SignalResults":
        """Store signals for the tables and, with `wait`, wait until the signals have ended.

        Raises the error of the first signal that failed.
        """
        from lakeingest.commands.signal import ask
        from lakeingest.pipeline.events import unobserved

        with self._session() as session:
            results = ask(
                self.config,
                action,
                tables,
                scope=scope,
                ddl=ddl,
                wait=wait,
                observe=observe or unobserved,
                spark=session,
            )
        results.raise_failure()
        return results
