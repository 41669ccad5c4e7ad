"""A real catalog on SQLite behind a network that loses, doubles, delays and misreports: each request meets a fault."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from requests.exceptions import ConnectionError as ConnectionBroken
from requests.exceptions import ReadTimeout

from lakeingest import config
from lakeingest.files.file import File
from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.catalogs.joint_catalog import TableCommit
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import OpenSpark, no_spark


@dataclass(frozen=True)
class Fault:
    """What becomes of a request: how often it arrives before the answer and how often after, and the false answer.

    Without a false answer, that of the last arrival is given. Copies that come late arrive before the `late_by`th
    request after this one, or when the test says so. `before` happens when it is sent, `meanwhile` while the answer is
    out.
    """

    arrives: int = 1
    answer: Exception | None = None
    late: int = 0
    late_by: int = 1
    before: Callable[[], object] | None = None
    meanwhile: Callable[[], object] | None = None


SOUND = Fault()
# an answer of a service and the class that PyIceberg's clients make of it
ANSWERS: dict[str, Exception] = {
    "nothing": ConnectionBroken("closed without an answer"),
    "a time-out": ReadTimeout("read timed out"),
    "a conflict": CommitFailedException("branch lakeingest has changed"),
    "500": CommitStateUnknownException("InternalServerError"),
    "502": CommitStateUnknownException("BadGateway"),
    "503": ServiceUnavailableError("Service Unavailable"),
    "504": CommitStateUnknownException("GatewayTimeout"),
    "500 of a load balancer": ServerError("<html>"),
    "401": UnauthorizedError("the token has expired"),
    "no JSON": ValueError("Expecting value: line 1 column 1 (char 0)"),
}


def done(answer: str) -> Fault:
    """The request takes effect, and its answer is this one."""
    return Fault(1, ANSWERS[answer])


def not_done(answer: str) -> Fault:
    """The request never arrives; somebody on the way answers."""
    return Fault(0, ANSWERS[answer])


# what one request and its repetitions meet; at the end of each it is done
FAULTS: dict[str, list[Fault]] = {
    "lost": [done("nothing")],
    "a conflict after success": [done("a conflict")],
    "500, 502, 503, 504, then a time-out": [*map(not_done, ("500", "502", "503", "504")), done("a time-out")],
    "other answers, then sent twice": [*map(not_done, ("a conflict", "401", "no JSON")), Fault(2)],
    "late, before it is sent again": [Fault(0, ANSWERS["503"], late=1)],
    "late, after it was sent again": [Fault(0, ANSWERS["nothing"], late=1, late_by=2)],
    "done, and once more later": [Fault(1, late=1)],
}


class _Meeting:
    """What a catalog behind such a network has beside its requests: they meet the faults of `plan` in their order."""

    plan: list[Fault]
    late: list[tuple[int, Callable[[], object]]]
    taken: int  # of the late copies

    def begin(self, plan: Iterable[Fault]) -> None:
        """Let the next requests meet these faults."""
        self.plan, self.late, self.taken = list(plan), [], 0

    def deliver(self, *, due: bool = False) -> None:
        """Let the late copies arrive; with `due` those whose time has come."""
        now = [copy for requests, copy in self.late if requests <= 0 or not due]
        self.late = [(requests - 1, copy) for requests, copy in self.late if requests > 0 and due]
        for copy in now:
            try:
                copy()
            except Exception:  # noqa: BLE001, S112 - nobody is there to hear it
                continue
            self.taken += 1

    def _meet(self, send: Callable[[], Any]) -> Any:
        fault = self.plan.pop(0) if self.plan else SOUND
        self.deliver(due=True)
        answer = None
        if fault.before is not None:
            fault.before()
        try:
            for _ in range(fault.arrives):
                answer = send()
        finally:
            self.late += [(fault.late_by - 1, send)] * fault.late
            if fault.meanwhile is not None:
                fault.meanwhile()
        if fault.answer is not None:
            raise fault.answer
        return answer


class Unreliable(_Meeting, SqlCatalog):
    """The catalog that a target uses; the requests that change something meet the faults of `plan` in their order."""

    def __init__(self, settings: config.Target, plan: Iterable[Fault]) -> None:
        super().__init__(config.CATALOG, **settings.pyiceberg_properties())
        self.begin(plan)

    def commit_table(self, *request: Any, **more: Any) -> Any:
        """A commit."""
        return self._meet(lambda: super(Unreliable, self).commit_table(*request, **more))

    def rename_table(self, *request: Any, **more: Any) -> Any:
        """The end of a first publish."""
        return self._meet(lambda: super(Unreliable, self).rename_table(*request, **more))

    def drop_table(self, *request: Any, **more: Any) -> Any:
        """The end of a table."""
        return self._meet(lambda: super(Unreliable, self).drop_table(*request, **more))


class UnreliableTogether(_Meeting, EmbeddedCatalog):
    """The catalog of a target whose commits of several tables, and of one table, meet the faults of `plan`."""

    def __init__(self, settings: config.Target, plan: Iterable[Fault]) -> None:
        super().__init__(config.CATALOG, **settings.pyiceberg_properties())
        self.begin(plan)
        self.together = 0  # the commits of several tables that were sent
        self.is_away, self.asked = False, 0  # while it is away, nothing is answered

    def commit_tables(self, commits: Sequence[TableCommit]) -> None:
        """A commit of several tables."""
        self.together += 1
        self._ask()
        self._meet(lambda: super(UnreliableTogether, self).commit_tables(commits))

    def load_table(self, *request: Any) -> Any:
        """The current table."""
        self._ask()
        return super().load_table(*request)

    def _ask(self) -> None:
        self.asked += 1
        if self.is_away:
            raise ConnectionBroken("refused")

    def commit_table(self, *request: Any, **more: Any) -> Any:
        """A commit of one table."""
        self._ask()
        return self._meet(lambda: super(UnreliableTogether, self).commit_table(*request, **more))


def behind(
    settings: config.Target,
    plan: Iterable[Fault] = (),
    waiting: File | None = None,
    open_spark: OpenSpark = no_spark,
) -> tuple[IcebergTarget, Unreliable]:
    """A target whose catalog meets these faults, and that catalog; the rest as `IcebergTarget` has it."""
    target, catalog = IcebergTarget(settings, waiting=waiting, open_spark=open_spark), Unreliable(settings, plan)
    target.__dict__["_catalog"] = catalog  # where the cached property keeps it
    return target, catalog
