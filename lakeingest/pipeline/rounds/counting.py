"""Counts, from time to time, what following the source has cost. The count is stored for `status`."""

import time

from lakeingest.core.figures.following import Followed
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.metering import Meter
from lakeingest.pipeline.run.profile import PUBLISHES
from lakeingest.state.following import store_following

COUNT_SECONDS = 10.0  # between two counts: each one looks at all processes of the machine


class Counting:
    """Counts what a run has cost since it began to follow."""

    def __init__(self, edges: Edges) -> None:
        self._edges, self._meter = edges, Meter.begin(edges.profile)
        self._began = self._counted_at = time.monotonic()
        self._publishes = self._publishes_so_far

    def count_if_due(self) -> Followed | None:
        """Count and store what following has cost since it began; None if it was counted a short time ago."""
        now, edges = time.monotonic(), self._edges
        if now - self._counted_at < COUNT_SECONDS:
            return None
        bill = self._meter.bill_of(edges.config, edges.profile)
        followed = Followed(time.time(), now - self._began, self._publishes_so_far - self._publishes, bill)
        store_following(edges.writing, followed)
        self._counted_at = now
        return followed

    @property
    def _publishes_so_far(self) -> int:
        """How many tables this run has published since it was opened; a table counts for each of its publishes."""
        return next((cost.times for cost in self._edges.profile.stages if cost.stage == PUBLISHES), 0)
