"""Live progress of a run below the cell that runs it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.drawing.frontend import drawn_again
from lakeingest.notebook.progress import Progress
from lakeingest.pipeline.events import Event, Observer


@contextmanager
def live() -> Iterator[Observer]:
    """Within the block, an observer of a run. The progress is shown below the cell, and drawn again as it goes on."""
    progress, began = Progress(), time.monotonic()
    with drawn_again(progress) as draw_soon:

        def observe(event: Event) -> None:
            progress.take(event, time.monotonic() - began)
            draw_soon()

        try:
            yield observe
        except BaseException as error:
            progress.end(time.monotonic() - began, error)
            raise
        progress.end(time.monotonic() - began, None)
