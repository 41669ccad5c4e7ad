"""A clock that moves when a test says so, for removals that wait."""

import pytest

from lakeingest.core.figures.moment import Moment
from lakeingest.lake.waiting import Waiting


class Clock:
    """What the machine's clocks say of when a removal began to wait, and of now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.boot, self.since_boot = 1.8e9, "first", 1000.0
        monkeypatch.setattr(Waiting, "_now", lambda _: Moment(self.wall, self.boot, self.since_boot))

    def passes(self, seconds: float) -> None:
        """So much time."""
        self.wall += seconds
        self.since_boot += seconds
