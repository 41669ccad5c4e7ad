"""A run that is reported: its events go to the metrics and to the notifier, and so does its end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lakeingest.config import Config
from lakeingest.errors import LakeIngestError, LeaseHeld, NotOurState
from lakeingest.exits import EXIT_INTERRUPTED, exit_code
from lakeingest.monitoring.lineage import Lineage
from lakeingest.monitoring.notifier import Notifier
from lakeingest.pipeline.events import Observer

if TYPE_CHECKING:
    from lakeingest.monitoring.export import Export

Result = TypeVar("Result")


def reported(config: Config, observe: Observer, run: Callable[[Observer], Result], *, follow: bool) -> Result:
    """Run with an observer that reports the events, too. Returns the result of `run`, or raises its error."""
    notifier = None if config.notify.webhook is None else Notifier(config, observe)
    observe = observe if notifier is None else notifier.observe
    lineage = None
    if config.notify.openlineage is not None:
        lineage = Lineage(config, config.notify.openlineage, observe, follow=follow)
        observe = lineage.observe
    export = None
    if config.metrics.is_set:
        from lakeingest.monitoring.export import Export  # it imports the library of Prometheus

        export = Export(config, observe, follow=follow)
        observe = export.observe
    try:
        result = run(observe)
    except BaseException as error:
        _end(export, notifier, lineage, error.result if isinstance(error, LakeIngestError) else None, error)
        raise
    else:
        _end(export, notifier, lineage, result)
        return result
    finally:
        if export is not None:
            export.close()


def _end(
    export: "Export | None",
    notifier: Notifier | None,
    lineage: Lineage | None,
    result: Any,
    error: BaseException | None = None,
) -> None:
    """Report the end of a run. `result`: its RunResult; None if the error has ended it at once."""
    if isinstance(error, LeaseHeld | NotOurState):  # another run owns the state, and reports
        return
    code = 0 if error is None else exit_code(error)
    name = "" if error is None else error.runbook if isinstance(error, LakeIngestError) else "InternalError"
    if export is not None:
        stages = () if result is None else result.profile
        export.end(code, caught_up=result is not None and result.caught_up, stages=stages, error=name)
    if lineage is not None:
        lineage.end(code, name, whole=result is None)
    if notifier is None or code == EXIT_INTERRUPTED:  # whoever has interrupted it need not be told
        return
    if error is None or result is not None:
        notifier.end()
    else:
        notifier.end(name, " ".join(str(error).split()))
