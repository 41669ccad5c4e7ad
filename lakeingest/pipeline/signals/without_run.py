"""Signals that take no work on a table, where nobody runs: they take the lease, and neither source nor Spark."""

from lakeingest.config import Config
from lakeingest.core.signals import Action, Event, agenda
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.pipeline.rolling_back import roll_all_back
from lakeingest.state.lease import held
from lakeingest.state.signals import SignalFolder


def settle(config: Config, observe: Observer = unobserved) -> None:
    """Carry out each `pause`, `resume`, `cancel` and `rollback`, and record which other signals have ended.

    LeaseHeld while a run is at work, which does that itself.
    """
    with held(state_of(config)) as lease:
        roll_all_back(config, lease, observe)
        folder = SignalFolder(state_of(config))
        documents = {one.signal.number: one for one in folder.read()}
        signals = [one.signal for one in documents.values()]
        asked = {table for one in signals if one.action is Action.RESNAPSHOT for table in one.tables}
        found = copies(open_target(config), asked).staged
        staged = {table: one.progress for table, one in found.items()}
        visible = {table: one.progress for table, one in found.items() if one.visible}
        known = config.tables.select({table for one in signals for table in one.tables})
        due = agenda(signals, known, staged, visible)
        for numbers, event in ((due.cancelled, Event.CANCEL), (due.finished, Event.FINISH)):
            for number in numbers:
                lease.assert_held()
                folder.move(documents[number], event)
        folder.trim()
