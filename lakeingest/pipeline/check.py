"""Check: every precondition of a run, asked together, each with its fix. Nothing is changed, no Spark is started.

A run asks them too before it begins, but for the warnings, which need estimates, and for what it opens itself at once:
the spool, and the copies that are there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pymysql

from lakeingest.config import Config
from lakeingest.control.folder import lacks_room, unwritable
from lakeingest.control.spool import Spool
from lakeingest.core.condition import Checked
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import (
    LakeIngestError,
    NotOurState,
    NotOurTable,
    OperatorNeeded,
    PreflightFailed,
    RestartNeeded,
    Retryable,
    StateUnreadable,
    UnsupportedTable,
)
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import Copies, copies
from lakeingest.lake.target import Target
from lakeingest.mysql import preflight, table_preflight
from lakeingest.mysql.connection import connect
from lakeingest.mysql.generated_columns import GeneratedColumns
from lakeingest.mysql.key_space import estimated_bytes
from lakeingest.mysql.schema_reader import list_tables, list_views
from lakeingest.pipeline.context import tasks_at_once
from lakeingest.pipeline.parity import parity as both_paths
from lakeingest.pipeline.report import Report
from lakeingest.pipeline.resume import owner, resumption
from lakeingest.quality import suites
from lakeingest.spark.session import lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_FREE = 1 << 30  # Spark's own files and a few waves
BYTES_PER_SECOND = 2 << 20  # of one slot: what the reference decoder reads at least; `plan` measures it
# These conditions are asked of each table: where one is not met, the other tables can be copied.
OF_ONE_TABLE = {
    *table_preflight.CONDITIONS,
    "keys and types",
    "generated columns",
    "columns in quality suites",
    "columns in the target",
    "keys that are named",
    "target tables",
}


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(Report):
    """What came of every precondition."""

    checked: tuple[Checked, ...]

    headers = ("condition", "result", "finding")

    @property
    def ok(self) -> bool:
        """Whether a run may begin."""
        return not self.problems

    @property
    def problems(self) -> tuple[Checked, ...]:
        """What keeps a run from beginning."""
        return tuple(one for one in self.checked if one.finding and one.fatal)

    @property
    def warnings(self) -> tuple[Checked, ...]:
        """What a run may begin with, but not well."""
        return tuple(one for one in self.checked if one.finding and not one.fatal)

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a condition."""
        for one in self.checked:
            yield one.name, "ok" if one.finding is None else "PROBLEM" if one.fatal else "warning", one.finding

    def to_json(self) -> dict[str, Any]:
        """A JSON document for programs."""
        return {"ok": self.ok, "checked": [asdict(one) for one in self.checked]}


def check(config: Config, session: "SparkSession | None" = None, *, parity: bool = False) -> CheckResult:
    """Ask everything, of the Spark session too if a run is to use one that is there.

    With `parity` rows are read on both paths and compared. Where the source cannot be asked, that is one finding beside
    the others.
    """
    try:
        with connect(config.source) as connection:
            checked, size = _source(config, connection, parity=parity)
    except LakeIngestError as error:
        lake = _target(copies(open_target(config), ()), ())
        checked, size = [Checked("connection", f"cannot connect: {error}"), *lake], 0
    checked += [*folders(config, size), _spool(config), Checked("Java and PySpark", lacking(config, session))]
    return CheckResult(tuple(checked))


def require(
    config: Config,
    connection: pymysql.Connection,
    known: Sequence[TableId],
    chosen: Collection[TableId],
    *,
    spark: bool,
) -> tuple[dict[TableId, TableSchema], dict[TableId, PreflightFailed]]:
    """The definitions of the tables that a run watches: those it is to bring up to date, and all that have a copy.

    Beside them, why some of the chosen tables cannot be copied. PreflightFailed with every precondition that is not met
    where one concerns all tables, or no chosen table is left; Retryable when another process holds the catalog. `spark`
    says whether a session has to be started.
    """
    target = open_target(config)
    held = copies(target, known)
    if isinstance(held.unopened, Retryable):
        raise held.unopened
    foreign = {table for table, error in held.refused.items() if isinstance(error, NotOurTable)}
    copied = {*held.there, *held.refused} - foreign
    watched = [table for table in known if table in chosen or table in copied]
    server, generated = _server(config, connection, watched), GeneratedColumns(config.source, connection)
    checked, schemas = _tables(config, server, target, generated)
    new = [schema for table, schema in schemas.items() if table not in copied]
    checked.append(table_preflight.declared_keys(connection, new))
    checked += [*_target(held, foreign.intersection(chosen)), *folders(config), _suites(config, known)]
    if spark:
        checked.append(Checked("Java and PySpark", lacking(config)))
    problems = CheckResult(tuple(checked)).problems
    refused = {} if not problems else _refused(config, server, target, generated, held, copied)
    shared = [one for one in problems if one.name not in OF_ONE_TABLE]
    if problems and (shared or refused.keys() >= set(chosen) or _lacks(server)):
        raise PreflightFailed(f"not ready: {' | '.join(one.finding or '' for one in problems)}")
    return {table: one for table, one in schemas.items() if table in copied or table not in refused}, refused


def _lacks(server: preflight.Server) -> bool:
    """Whether a condition that is asked table by table is not met without any table."""
    return any(one.finding for one in preflight.ask(server.watching(()), table_preflight.CONDITIONS))


def _refused(
    config: Config,
    server: preflight.Server,
    target: Target,
    generated: GeneratedColumns,
    held: Copies,
    copied: Collection[TableId],
) -> dict[TableId, PreflightFailed]:
    """The tables that cannot be copied by themselves, each with all that stands against it."""
    refused = {}
    for table in server.tables:
        checked, schemas = _tables(config, server.watching((table,)), target, generated)
        if table not in copied:
            checked.append(table_preflight.declared_keys(server.connection, schemas.values()))
            checked += _target(held, [table] if table in held.refused else [])
        if problems := [one.finding or "" for one in CheckResult(tuple(checked)).problems]:
            refused[table] = PreflightFailed(f"{table} is not ready: {' | '.join(problems)}")
    return refused


def _server(config: Config, connection: pymysql.Connection, tables: Sequence[TableId]) -> preflight.Server:
    missing = [table for table in tables if config.tables.of(table).cascades == "missing"]
    return preflight.Server.of(connection, tables, missing)


def _source(config: Config, connection: pymysql.Connection, *, parity: bool) -> tuple[list[Checked], int]:
    """What is asked of the source, and of the lake for its tables; and about how many bytes there are to copy."""
    there = list_tables(connection)
    tables = config.tables.select(there)
    target = open_target(config)
    held = copies(target, tables)
    server = _server(config, connection, tables)
    checked, schemas = _tables(config, server, target, GeneratedColumns(config.source, connection))
    progress = {table: held.there[table].progress for table in schemas if table in held.there}
    changed = [table for table in progress if progress[table].fingerprint != schemas[table].fingerprint]
    missing = [table for table in schemas if table not in progress or not progress[table].splits.complete]
    size = sum(estimated_bytes(connection, schemas[table]) for table in missing)
    seconds = size / BYTES_PER_SECOND / tasks_at_once(config.source)
    return [
        Checked("connection", None),
        _included(config, there, list_views(connection)),
        *checked,
        table_preflight.declared_keys(connection, schemas.values()),
        table_preflight.missing_cascades(server),
        Checked("binlog retention", preflight.retention(server, seconds), fatal=False),
        *_target(held, [table for table, error in held.refused.items() if not isinstance(error, Retryable)]),
        _unchanged(changed),
        _suites(config, tables),
        *_saved(config, connection, schemas, {table: progress[table] for table in progress if table not in changed}),
        *(both_paths(config.source, connection, schemas) if parity else ()),
    ], size


def _tables(
    config: Config, server: preflight.Server, target: Target, generated: GeneratedColumns
) -> tuple[list[Checked], dict[TableId, TableSchema]]:
    """The server and its tables, and the definitions of those that can be copied."""
    schemas, usable = table_preflight.read_schemas(server.connection, server.tables, config.tables)
    checked = preflight.ask(server, preflight.CONDITIONS | table_preflight.CONDITIONS)
    unknown = suites.unknown_columns(config.quality.suites, schemas)
    return [
        *checked,
        usable,
        generated.checked(schemas.values()),
        _typed(target, schemas.values()),
        Checked("columns in quality suites", unknown),
    ], schemas


def _saved(
    config: Config,
    connection: pymysql.Connection,
    schemas: Mapping[TableId, TableSchema],
    copied: Mapping[TableId, Progress],
) -> Iterator[Checked]:
    """Whose the state folder is, and whether a run could go on from what is saved: asked as a run asks it."""

    def owned() -> None:
        owner(config, connection, copied)

    def continued() -> str | None:
        failed = resumption(config, connection, schemas, copied).failed
        return "; ".join(f"{table}: {error}" for table, error in failed.items()) or None

    questions: dict[str, Callable[[], str | None]] = {
        "owner of the state folder": owned,
        "saved positions": continued,
    }
    for name, ask in questions.items():
        try:
            finding = ask()
        except StateUnreadable:  # told of as the spool
            continue
        except (RestartNeeded, NotOurState) as error:
            yield Checked(name, str(error))
        except OperatorNeeded:  # told of as a setting of the server, or as the state folder
            continue
        else:
            yield Checked(name, finding)


def _typed(target: Target, schemas: Iterable[TableSchema]) -> Checked:
    """Every column has a type, and can have its name, in the target."""
    refused = []
    for schema in schemas:
        try:
            target.types(schema)
        except UnsupportedTable as error:
            refused.append(f"{schema.table}: {error}")
    return Checked("columns in the target", "; ".join(refused) or None)


def _included(config: Config, there: Sequence[TableId], views: Sequence[TableId]) -> Checked:
    """Every pattern names a table; fatal only where none does."""
    patterns = config.tables.include
    alone = {pattern: config.tables.model_copy(update={"include": (pattern,)}) for pattern in patterns}
    idle = [pattern for pattern in patterns if not alone[pattern].select(there)]
    finding = f"no table that {config.source.user} may see matches tables.include {idle}; correct it, or GRANT SELECT"
    if named := sorted({str(view) for pattern in idle for view in alone[pattern].select(views)}):
        finding += f"; of {', '.join(named)}, a view, there is nothing in the binlog: include the tables that it reads"
    return Checked("tables.include", finding if idle else None, fatal=len(idle) == len(patterns))


def _unchanged(changed: Sequence[TableId]) -> Checked:
    named = ", ".join(map(str, changed))
    finding = (
        f"DDL changed the definition of {named} since the copy; run once for the other tables, then drop the copy,"
        " and the next run makes it again"
    )
    return Checked("definitions as copied", finding if changed else None)


def _suites(config: Config, tables: Sequence[TableId]) -> Checked:
    return Checked("quality suites", suites.finding(config.quality.suites, tables))


def _target(held: Copies, refused: Iterable[TableId]) -> list[Checked]:
    """The catalog, and what stands there under the tables' names."""
    reasons = "; ".join(str(held.refused[table]) for table in sorted(refused))
    unopened = None if held.unopened is None else str(held.unopened)
    return [Checked("catalog", unopened), Checked("target tables", reasons or None)]


def folders(config: Config, size: int = 0) -> Iterator[Checked]:
    """The folders that a run writes to, and whether they have room for about so many bytes."""
    for name, folder in (("state folder", config.state), ("warehouse", config.target.warehouse)):
        yield Checked(name, unwritable(name, folder))
        full = lacks_room(folder, LEAST_FREE)
        yield Checked(f"room in the {name}", full or lacks_room(folder, size), fatal=full is not None)


def _spool(config: Config) -> Checked:
    try:
        Spool.load(config.state / "spool")
    except (LakeIngestError, OSError) as error:
        return Checked("spool", str(error))
    return Checked("spool", None)
