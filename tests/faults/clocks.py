"""The clock of this process, set to another time; other processes, such as Spark's, keep the right one."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo

import pytest

_PACKAGES = ("lakeingest.", "pyiceberg.")


@contextmanager
def clock_ahead(by: timedelta) -> Iterator[None]:
    """Within the block, this process has a clock that is ahead, or behind; times of files stay as they are."""
    right = time.time

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + by.total_seconds())
        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGES) and getattr(module, "datetime", None) is datetime:
                patch.setattr(module, "datetime", Shifted)
        yield
