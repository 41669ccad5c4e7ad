"""A run that is reported: its events go to its report, to the metrics and to the notifier, and so does its end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lakeingest.config import Config
from lakeingest.errors import LeaseHeld, NotOurState, UsageError
from lakeingest.monitoring.ending import Ending
from lakeingest.monitoring.run_report import RunReport
from lakeingest.pipeline.events import Observer

if TYPE_CHECKING:
    from lakeingest.monitoring.export import Export
    from lakeingest.monitoring.notifier import Notifier

Result = TypeVar("Result")


def reported(config: Config, observe: Observer, run: Callable[[Observer], Result], *, follow: bool) -> Result:
    """Run with an observer that reports the events, too. Returns the result of `run`, or raises its error."""
    report = RunReport(config, observe)
    observe, notifier, export = report.observe, None, None
    if config.notify.webhook is not None:
        from lakeingest.monitoring.notifier import Notifier  # it imports clients of HTTP

        notifier = Notifier(config, observe)
        observe = notifier.observe
    if config.metrics.is_set:
        from lakeingest.monitoring.export import Export  # it imports the library of Prometheus

        export = Export(config, observe, follow=follow)
        observe = export.observe
    try:
        result = run(observe)
    except BaseException as error:
        if not isinstance(error, LeaseHeld | NotOurState):  # another run owns the state, and reports
            _end(report, export, notifier, Ending.of(None, error), is_usage=isinstance(error, UsageError))
        raise
    else:
        _end(report, export, notifier, Ending.of(result, None))
        return result
    finally:
        if export is not None:
            export.close()


def _end(
    report: RunReport, export: "Export | None", notifier: "Notifier | None", ending: Ending, *, is_usage: bool = False
) -> None:
    """Report the end of a run. `is_usage`: it is the mistake of the person who typed the command."""
    if not is_usage:
        report.end(ending)
    if export is not None:
        stages = () if ending.result is None else ending.result.profile
        export.end(ending.code, caught_up=ending.result is not None and ending.result.caught_up, stages=stages)
    if notifier is None or ending.is_interrupted:  # whoever has interrupted it need not be told
        return
    if ending.result is not None:
        notifier.end()
    else:
        notifier.end(ending.error, ending.message)
