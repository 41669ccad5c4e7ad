"""Following: tables are brought up to date, then the source's new changes are spooled, merged and published in rounds.

Tables that appear in the source join the run, and are copied beside the rounds. Signals are served between rounds. A
table that needs a person waits for the next run.
"""

import time
from collections.abc import Callable

from lakeingest.pipeline.copying.beside import CopyingBeside
from lakeingest.pipeline.events import Following
from lakeingest.pipeline.points import Keeping
from lakeingest.pipeline.rounds.away import POLL_SECONDS, persistently, wait
from lakeingest.pipeline.rounds.bounded import bring_up_to_date
from lakeingest.pipeline.rounds.counting import Counting
from lakeingest.pipeline.rounds.discovery import Discovery
from lakeingest.pipeline.rounds.due import worth_a_retry
from lakeingest.pipeline.rounds.ledger import Ledger
from lakeingest.pipeline.rounds.measuring import Measuring
from lakeingest.pipeline.rounds.one_round import Beside, take_round
from lakeingest.pipeline.rounds.pace import Pace
from lakeingest.pipeline.rounds.proving import Proving
from lakeingest.pipeline.rounds.usual import Comparing
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.signals.serving import give_up_reads, serve


def follow(run: OpenRun, stopping: Callable[[], bool], began: float) -> bool:
    """Bring the tables up to date, then keep them up to date until `stopping` says so.

    False if `stopping` said so before the tables were up to date. `began`: the time of the monotonic clock at which the
    run began.
    """
    proving = Proving(run)
    # with a throttle, copying may wait for hours: it is done beside the rounds
    leaves = run.edges.throttle.is_set
    if not persistently(run, stopping, lambda: bring_up_to_date(run, stopping, lambda: leaves)):
        return False
    run.edges.observe(Following(time.monotonic() - began))
    keep_up_to_date(run, stopping, proving)
    return True


def keep_up_to_date(run: OpenRun, stopping: Callable[[], bool], proving: Proving) -> None:
    """Take rounds until `stopping` says so, or until no table can go on. `stopping` is asked after each commit."""
    beside = Beside(Discovery(run), CopyingBeside(run.edges, run.binlog))
    worked_at = {table.id: time.monotonic() for table in run.requested}
    pace = Pace(run.edges.config.target.publish_every)
    measuring = Measuring(run, proving, Counting(run.edges))
    ledger, comparing, points = Ledger(run.edges), Comparing(run), Keeping(run)
    run.signals.folder.trim()

    def work() -> bool:
        """Take one round, serve signals, and do what is due after a round. True if the round or a signal had work."""
        # `|` and not `or`: signals are served even if the round had work
        worked = take_round(run, stopping, worked_at, pace, beside) | (not stopping() and serve(run, wait=False))
        measuring.measure_if_due(worked=worked)
        points.keep_if_due()
        proving.step()
        comparing.compare_if_due()
        ledger.write_if_due(proving.known)
        return worked

    try:
        while not stopping() and (run.going_on or run.paused or worth_a_retry(run)):  # paused tables may be resumed
            if not persistently(run, stopping, work):
                wait(min(pace.seconds_left or POLL_SECONDS, POLL_SECONDS), stopping)
        comparing.compare()
        ledger.write(proving.known)
    finally:
        proving.end()
        beside.copying.cancel()
        give_up_reads(run)
