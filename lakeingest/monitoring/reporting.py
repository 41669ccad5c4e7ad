"""A run that is reported: its events and its end go to its report, to the metrics, to the notifier and to lineage."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lakeingest.config import Config
from lakeingest.errors import LeaseHeld, NotOurState, UsageError
from lakeingest.monitoring.ending import Ending
from lakeingest.monitoring.run_report import RunReport
from lakeingest.pipeline.events import Observer

if TYPE_CHECKING:
    from lakeingest.monitoring.export import Export
    from lakeingest.monitoring.lineage import Lineage
    from lakeingest.monitoring.notifier import Notifier

Result = TypeVar("Result")


def reported(config: Config, observe: Observer, run: Callable[[Observer], Result], *, follow: bool) -> Result:
    """Call `run` with an observer that also reports each event, and report the end. Returns and raises as `run`."""
    report = RunReport(config, observe)
    observe, notifier, lineage, export = report.observe, None, None, None
    if config.notify.webhook is not None:
        from lakeingest.monitoring.notifier import Notifier  # it imports clients of HTTP

        notifier = Notifier(config, observe)
        observe = notifier.observe
    if config.notify.openlineage is not None:
        from lakeingest.monitoring.lineage import Lineage  # it imports clients of HTTP, too

        lineage = Lineage(config, config.notify.openlineage, observe, follow=follow)
        observe = lineage.observe
    if config.metrics.is_set:
        from lakeingest.monitoring.export import Export  # few runs need it

        export = Export(config, observe, follow=follow)
        observe = export.observe
    try:
        result = run(observe)
    except BaseException as error:
        if not isinstance(error, LeaseHeld | NotOurState):  # with these, another run owns the state, and reports
            if not isinstance(error, UsageError):  # with a UsageError, no run has begun
                report.end(Ending.of(None, error))
            _end(export, notifier, lineage, Ending.of(None, error))
        raise
    else:
        report.end(Ending.of(result, None))
        _end(export, notifier, lineage, Ending.of(result, None))
        return result
    finally:
        if export is not None:
            export.close()


def _end(export: "Export | None", notifier: "Notifier | None", lineage: "Lineage | None", ending: Ending) -> None:
    """Report the end of a run to other systems."""
    result = ending.result
    if export is not None:
        stages = () if result is None else result.profile
        caught_up = result is not None and result.caught_up
        export.end(ending.code, caught_up=caught_up, stages=stages, error=ending.error)
    if lineage is not None:
        lineage.end(ending.code, ending.error, whole=result is None)
    if notifier is None or ending.is_interrupted:  # whoever has interrupted it need not be told
        return
    if result is not None:  # an error, if there is one, has stopped only some tables
        notifier.end()
    else:
        notifier.end(ending.error, ending.message)
