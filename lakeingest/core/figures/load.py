"""The load of a source, and the limits of the load at which reads wait."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the server that rows are read from, or the greatest load at which rows are read.

    A field without a limit is None, and is not measured. `replica_lag`: how many seconds ago the source had executed
    a transaction that the replica lacks.
    """

    threads_running: int | None = None
    history_list_length: int | None = None
    replica_lag: float | None = None

    def excess(self, limit: "Load") -> str | None:
        """The first of the limits that this load exceeds, in words; None if it exceeds none."""
        if _exceeds(self.threads_running, limit.threads_running):
            return f"more than {limit.threads_running:,} threads are running on the source (throttle.threads_running)"
        if _exceeds(self.history_list_length, limit.history_list_length):
            return (
                f"InnoDB keeps old row versions of more than {limit.history_list_length:,} transactions"
                " (throttle.history_list_length)"
            )
        if _exceeds(self.replica_lag, limit.replica_lag):
            return f"the replica lags by more than {limit.replica_lag:,.0f} s (throttle.replica_lag)"
        return None


def _exceeds(measured: float | None, limit: float | None) -> bool:
    """Whether a limit is exceeded. A load with a limit is always measured."""
    return limit is not None and measured is not None and measured > limit
