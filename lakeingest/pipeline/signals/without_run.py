"""Carries out signals while no run is at work, if they need no work on a table's rows.

That needs the lease, but neither the source nor Spark.
"""

from lakeingest.config import Config
from lakeingest.core.copies.signals import Action, Event, agenda
from lakeingest.errors import UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_points, open_target
from lakeingest.lake.preflight import copies
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.pipeline.points import drop_point
from lakeingest.pipeline.rolling_back import roll_all_back
from lakeingest.state.lease import Lease, held
from lakeingest.state.signals import SignalDocument, SignalFolder


def serve_without_run(config: Config, observe: Observer = unobserved) -> None:
    """Carry out each `pause`, `resume`, `cancel`, `rollback` and `drop-point`; record which other signals have ended.

    Raises LeaseHeld while a run is at work: then that run does the same.
    """
    with held(state_of(config)) as lease:
        roll_all_back(config, lease, observe)
        folder = SignalFolder(state_of(config), lease.assert_held)
        documents = {document.signal.number: document for document in folder.read()}
        signals = [document.signal for document in documents.values()]
        # the progress of copies is needed only for re-snapshots: it tells whose rows were read, and are visible
        resnapshots = [signal for signal in signals if signal.action is Action.RESNAPSHOT]
        reread_tables = {table for signal in resnapshots for table in signal.tables}
        staged = copies(open_target(config), reread_tables).staged
        progress = {table: copy.progress for table, copy in staged.items()}
        visible = {table: copy.progress for table, copy in staged.items() if copy.visible}
        tables = config.tables.select({table for signal in signals for table in signal.tables})
        decided = agenda(signals, tables, progress, visible)
        for number in decided.cancelled:
            folder.move(documents[number], Event.CANCEL)
        # `finished` has all pauses and resumes, too: they are done as soon as they are read
        for number in decided.finished:
            folder.move(documents[number], Event.FINISH)
        for signal in decided.points:
            if signal.action is Action.DROP_POINT:
                _drop_point(config, folder, documents[signal.number], lease)
        folder.trim()


def _drop_point(config: Config, folder: SignalFolder, document: SignalDocument, lease: Lease) -> None:
    """Carry out the signal that drops a point."""
    lease.assert_held()
    try:
        drop_point(state_of(config), open_points(config), document.signal.name or "")
    except UsageError as error:
        folder.move(document, Event.FAIL, why=error.line)
    else:
        folder.move(document, Event.FINISH)
