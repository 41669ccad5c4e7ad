"""Check: every precondition of a run is checked, and each problem is reported with its fix.

Nothing is changed, and no Spark is started, except for suites on the source. A run checks the same preconditions before
it begins, except two kinds. It does not check conditions that are only warnings, because they need estimates. It does
not check the spool and the existing copies, because it opens them itself.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakeingest.commands.parity import parity as parity_conditions
from lakeingest.commands.proof import proofs
from lakeingest.commands.report import Report
from lakeingest.commands.retention import Retention, binlog_gone_message, unread_from
from lakeingest.commands.suites_on_source import suite_conditions
from lakeingest.config import Config
from lakeingest.core.binlog.position import is_in_one_of
from lakeingest.core.copies.progress import Progress
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import (
    BinlogGone,
    LakeIngestError,
    NotOurState,
    OperatorNeeded,
    RestartNeeded,
    Retryable,
    SourceBehind,
    StateUnreadable,
)
from lakeingest.files.file import state_of
from lakeingest.lake.formats import missing_rights, open_target
from lakeingest.lake.preflight import copies
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.preflight.foreign_keys import missing_cascades
from lakeingest.mysql.preflight.server import has_gtids, retention, row_metadata, service
from lakeingest.mysql.schema_reader import list_views
from lakeingest.mysql.statements_ahead import statement_ahead
from lakeingest.pipeline import preconditions
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.opening.resumption import asked_to_read_again, owner, resumption
from lakeingest.pipeline.opening.starts import start_position
from lakeingest.pipeline.preconditions import Preflight, folders, lake_of, spark_of, suites_of
from lakeingest.pipeline.run.clocks import disagreement
from lakeingest.pipeline.run.executors import tasks_at_once
from lakeingest.pipeline.run.foreign_tables import foreign_table
from lakeingest.spool.spool import Spool
from lakeingest.state.owner import owner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The least speed of one connection that copies, with the reference decoder; `plan` measures the real speed.
BYTES_PER_SECOND = 2 << 20
RECENT_SECONDS = 86_400.0  # so long after its last commit, another tool may still be at work: some write once a day


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(Report):
    """The result of every precondition."""

    checked: tuple[Checked, ...]

    headers = ("condition", "result", "finding")

    @property
    def ok(self) -> bool:
        """Whether a run may begin."""
        return not self.problems

    @property
    def problems(self) -> tuple[Checked, ...]:
        """The conditions that are not met, and without which a run does not begin."""
        return tuple(preconditions.problems(self.checked))

    @property
    def runbook(self) -> str:
        """The name of the one runbook that all problems have; '' if they have several, or none."""
        names = {problem.runbook for problem in self.problems}
        return names.pop() if len(names) == 1 else ""

    @property
    def warnings(self) -> tuple[Checked, ...]:
        """The conditions that are not met, but without which a run begins."""
        return tuple(condition for condition in self.checked if condition.finding and not condition.fatal)

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each condition."""
        for condition in self.checked:
            problem = "PROBLEM" if condition.fatal else "warning"
            yield condition.name, "ok" if condition.finding is None else problem, condition.finding

    def to_json(self) -> dict[str, Any]:
        """A JSON document for programs."""
        return {"ok": self.ok, "checked": [asdict(condition) for condition in self.checked]}


def check(
    config: Config, session: "SparkSession | None" = None, *, parity: bool = False, suites: bool = False
) -> CheckResult:
    """Check every precondition. An existing Spark `session` is checked too, because a run would use it.

    With `parity`, rows are read by SELECT and from the binlog, and compared. With `suites`, the users' suites are asked
    of a sample of each table in the source, which takes a session of Spark. If the source cannot be checked, no error
    is raised: the condition `connection` has the reason.
    """
    try:
        with BinlogSource.open(config.source) as source:
            checked, bytes_left = _check_source_and_lake(config, source, parity=parity)
    except LakeIngestError as error:
        # without the source no tables are known, so only the lake itself is checked
        lake = lake_of(copies(open_target(config), ()), ())
        checked, bytes_left = [Checked.failed("connection", error), *lake], 0
    written = [*folders(config, bytes_left), *_lake_formation(config)]
    # `proofs` must see all results, because it leaves out servers that did not answer; `written` is reported after it
    checked += [*proofs(config, [*checked, *written]), *written]
    checked += [_spool(config), spark_of(config, session)]
    checked.append(warning("code that Spark loads", config.spark.loads_code))
    if suites:
        checked += suite_conditions(config, session)
    return CheckResult(tuple(checked))


def warning(condition: str, findings: Iterable[str]) -> Checked:
    """A condition that is met if there are no findings; otherwise a warning that lists them."""
    text = "; ".join(findings)
    return Checked(condition, f"{text}: trust who wrote this, or leave it out" if text else None, fatal=False)


def _check_source_and_lake(config: Config, source: BinlogSource, *, parity: bool) -> tuple[list[Checked], int]:
    """Check source and lake. Returns the results, and an estimate of the bytes that are still to be copied."""
    tables_of_source = source.tables()
    of_pipeline = known_tables(config, source, tables_of_source)
    tables = of_pipeline.updated()
    preflight = Preflight.of(config, source, tables)
    in_lake = preflight.held
    # copies that no run can continue; with a Retryable, the next run may be able to read and continue the copy
    refused = [table for table, error in in_lake.refused.items() if not isinstance(error, Retryable)]
    checked, schemas = preflight.of_source_and_lake(refused)  # `schemas`: only tables that can be copied
    progress = {table: in_lake.staged[table].progress for table in schemas if table in in_lake.staged}
    changed = [table for table in progress if progress[table].fingerprint != schemas[table].fingerprint]
    # the position of a copy is not checked if its definition was changed, which is a condition of its own
    unchanged = {table: in_lake.staged[table] for table in progress if table not in changed}
    incomplete = [table for table in schemas if table not in progress or not progress[table].splits.complete]
    bytes_left = sum(source.estimated_bytes(schemas[table]) for table in incomplete)
    copy_seconds = bytes_left / BYTES_PER_SECOND / tasks_at_once(config.source)
    return [
        Checked("connection", None),
        _include_patterns(config, tables_of_source, list_views(source.connection)),
        *checked,
        missing_cascades(preflight.server, config.tables),
        service(preflight.server),
        row_metadata(preflight.server),
        has_gtids(preflight.server),
        Checked("binlog retention", retention(preflight.server, copy_seconds), fatal=False),
        Checked("clocks", disagreement(source, in_lake.staged), fatal=False),
        _binlog_of_next_run(config, source, progress.values()),
        Checked("statements in the unread binlog", _statement_warning(config, source, schemas), fatal=False),
        _unchanged_definitions(changed, follows=config.evolves),
        _copies_without_table(of_pipeline.left),
        _place_of_start(config, source, has_new=len(progress) < len(schemas)),
        _tools_at_work(config, [schema for table, schema in schemas.items() if table not in progress]),
        suites_of(config, of_pipeline.tables),
        *_state_and_positions(config, source, schemas, unchanged),
        *(parity_conditions(source, schemas) if parity else ()),
    ], bytes_left


def _binlog_of_next_run(config: Config, source: BinlogSource, copied: Iterable[Progress]) -> Checked:
    """Whether the source still has the binlog that the copies need; a warning if the source will delete it soon."""
    name = "binlog that the next run needs"
    source_retention = Retention.of_source(source, list(source.files()))
    try:
        spool = Spool.load(state_of(config) / "spool")
    except LakeIngestError:  # the condition `spool` reports this error
        return Checked(name, None)
    positions = {progress.table: unread_from(spool, progress) for progress in copied}
    unread = {table: since for table, since in positions.items() if since is not None}
    if tables_gone := [table for table, since in unread.items() if source_retention.has_deleted(since)]:
        return Checked(name, binlog_gone_message(tables_gone), runbook=BinlogGone.__name__)
    # many tables have the same position: ask the source only once for each position
    seconds_left = [source_retention.seconds_left(config, since) for since in dict.fromkeys(unread.values())]
    finding = source_retention.warning([seconds for seconds in seconds_left if seconds is not None])
    return Checked(name, finding, fatal=False)


def _statement_warning(config: Config, source: BinlogSource, schemas: Mapping[TableId, TableSchema]) -> str | None:
    """A warning if the unread binlog of the next run has a statement that stops tables; None if it has none.

    A run with a spool reads on from the end of the spool. A first run reads the current binlog file from its start if
    the server cannot tell the exact position of a read view. If the server can tell it, a first run reads none of the
    existing binlog.
    """
    try:
        spool = Spool.load(state_of(config) / "spool")
        start = None  # None: from the start of the current file
        if spool is None:
            tells_read_views = source.has_exact_lows() or source.state().executed is not None
            if tells_read_views:
                return None
        elif is_in_one_of(spool.position.at, source.files()):  # otherwise another condition says that it is deleted
            start = spool.position.at
        finding = statement_ahead(config.source, start, schemas)
    except LakeIngestError:  # other conditions report errors of the spool, the rights, the settings and the binlog
        return None
    return None if finding is None else f"the next run stops tables: {finding}"


def _state_and_positions(
    config: Config,
    source: BinlogSource,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Staged],
) -> Iterator[Checked]:
    """Two conditions: the state folder is this pipeline's; a run could continue the copies in `copied`.

    Both are checked as a run checks them. A condition is left out if another condition reports its error.
    """
    progress = {table: staged.progress for table, staged in copied.items()}

    def assert_owned() -> None:
        """Raise the error if the folder is not this pipeline's; else there is no finding."""
        owner(config, source, copied)

    def failed_tables() -> str | None:
        """The tables that a run could not continue, each with the error; None if there are none.

        If someone has asked to read all rows of a table again, the table is left out: a run starts its copy over.
        """
        started_over = asked_to_read_again(config, tables=copied.keys(), staged=copied)
        failed = resumption(config, source, schemas, progress, asked=started_over).failed
        errors = [f"{table}: {error}" for table, error in failed.items() if table not in started_over]
        return "; ".join(errors) or None

    findings: dict[str, Callable[[], str | None]] = {
        "owner of the state folder": assert_owned,
        "saved positions": failed_tables,
    }
    for name, find in findings.items():
        try:
            finding = find()
        except StateUnreadable:  # the condition `spool` reports this error
            continue
        except (RestartNeeded, NotOurState, SourceBehind) as error:
            yield Checked.failed(name, error)
        except OperatorNeeded:  # the conditions of the server's settings or of the state folder report this error
            continue
        else:
            yield Checked(name, finding)


def _include_patterns(config: Config, existing: Sequence[TableId], views: Sequence[TableId]) -> Checked:
    """Whether every pattern of tables.include matches a table of the source; fatal only if no pattern matches.

    `existing` are the tables of the source, `views` its views.
    """
    patterns = config.tables.include
    # for each pattern, the options with this pattern alone in `include`
    with_only = {pattern: config.tables.model_copy(update={"include": (pattern,)}) for pattern in patterns}
    unmatched = [pattern for pattern in patterns if not with_only[pattern].select(existing)]
    finding = None
    if unmatched:
        user = config.source.user
        finding = f"no table that {user} may see matches tables.include {unmatched}; correct it, or GRANT SELECT"
        if matching := sorted({str(view) for pattern in unmatched for view in with_only[pattern].select(views)}):
            names = ", ".join(matching)
            finding += f"; {names} is a view, which the binlog has no changes of: include the tables that it reads"
    return Checked("tables.include", finding, fatal=len(unmatched) == len(patterns))


def _unchanged_definitions(changed: Sequence[TableId], *, follows: bool) -> Checked:
    """The condition that DDL has not changed the definitions of copied tables. `changed` are the tables with such DDL.

    The condition is only a warning if copies follow DDL (`follows`).
    """
    names = ", ".join(map(str, changed))
    way_out = "run once for the other tables, then drop the copy, and the next run makes it again"
    if follows:
        way_out = "the next run lets the copy follow, or says why it cannot"
    finding = f"DDL changed the definition of {names} since the copy; {way_out}"
    return Checked("definitions as copied", finding if changed else None, fatal=not follows)


def _place_of_start(config: Config, source: BinlogSource, *, has_new: bool) -> Checked:
    """The condition that the source's binlog has the place at which new copies begin, if `tables.startup` names one."""
    name, begins = "place where copies begin", config.tables.begins_at
    if begins is None or not has_new:
        return Checked(name, None)
    try:
        start_position(source, begins)
    except (RestartNeeded, OperatorNeeded) as error:
        return Checked(name, f"tables.startup: {error}")
    return Checked(name, None)


def _tools_at_work(config: Config, schemas: Iterable[TableSchema]) -> Checked:
    """A warning for each table of another tool that becomes a copy, and to which the tool wrote not long ago."""
    foreign = {}
    for schema in schemas if config.tables.adopts else ():
        with suppress(LakeIngestError):  # the condition `tables of other tools` has the error
            foreign[schema.table] = foreign_table(config, schema)
    now = time.time()
    findings = [
        f"{table}: {found.stopped} made its last commit {spoken(now - found.changed)} ago; be sure that it is off"
        for table, found in foreign.items()
        if found is not None and now - found.changed < RECENT_SECONDS
    ]
    return Checked("tools that are to be off", "; ".join(findings) or None, fatal=False)


def _copies_without_table(tables: Mapping[TableId, str]) -> Checked:
    """A warning that names `tables`, whose copies no run updates, each with the reason."""
    reasons = "; ".join(f"{table} {reason}" for table, reason in tables.items())
    return Checked("copies without a table", reasons or None, fatal=False)


def _lake_formation(config: Config) -> Iterator[Checked]:
    """A warning if rights in Lake Formation are missing. Without Lake Formation there is no such condition."""
    findings = missing_rights(config)
    if findings is not None:
        yield Checked("Lake Formation", "; ".join(findings) or None, fatal=False)


def _spool(config: Config) -> Checked:
    """The condition that the spool, and the owner of the state folder, can be read."""
    try:
        owner_of(state_of(config))
        Spool.load(state_of(config) / "spool")
    except LakeIngestError as error:
        return Checked.failed("spool", error)
    except OSError as error:
        return Checked("spool", str(error))
    return Checked("spool", None)
