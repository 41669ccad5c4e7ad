"""Check: every precondition of a run, asked together, each with its fix. Nothing is changed, no Spark is started.

A run asks them too before it begins, but for the warnings, which need estimates, and for what it opens itself at once:
the spool, and the copies that are there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pymysql

from lakeingest.commands.parity import parity as both_paths
from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.condition import Checked
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import (
    LakeIngestError,
    NotOurState,
    OperatorNeeded,
    RestartNeeded,
    Retryable,
    StateUnreadable,
)
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copies
from lakeingest.mysql.connection import connect
from lakeingest.mysql.key_space import estimated_bytes
from lakeingest.mysql.preflight import server as preflight
from lakeingest.mysql.preflight import tables as table_preflight
from lakeingest.mysql.preflight.generated_columns import GeneratedColumns
from lakeingest.mysql.schema_reader import list_tables, list_views
from lakeingest.pipeline import preconditions
from lakeingest.pipeline.context import tasks_at_once
from lakeingest.pipeline.preconditions import conditions_of, folders, lake_of, server_of, suites_of
from lakeingest.pipeline.resume import owner, resumption
from lakeingest.spark.session import lacking
from lakeingest.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_PER_SECOND = 2 << 20  # of one slot: what the reference decoder reads at least; `plan` measures it


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
        return tuple(preconditions.problems(self.checked))

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
        lake = lake_of(copies(open_target(config), ()), ())
        checked, size = [Checked("connection", f"cannot connect: {error}"), *lake], 0
    checked += [*folders(config, size), _spool(config), Checked("Java and PySpark", lacking(config, session))]
    return CheckResult(tuple(checked))


def _source(config: Config, connection: pymysql.Connection, *, parity: bool) -> tuple[list[Checked], int]:
    """What is asked of the source, and of the lake for its tables; and about how many bytes there are to copy."""
    there = list_tables(connection)
    tables = config.tables.select(there)
    target = open_target(config)
    held = copies(target, tables)
    server = server_of(config, connection, tables)
    checked, schemas = conditions_of(config, server, target, GeneratedColumns(config.source, connection))
    progress = {table: held.staged[table].progress for table in schemas if table in held.staged}
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
        *lake_of(held, [table for table, error in held.refused.items() if not isinstance(error, Retryable)]),
        _unchanged(changed),
        suites_of(config, tables),
        *_saved(config, connection, schemas, {table: progress[table] for table in progress if table not in changed}),
        *(both_paths(config.source, connection, schemas) if parity else ()),
    ], size


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


def _spool(config: Config) -> Checked:
    try:
        Spool.load(config.state / "spool")
    except (LakeIngestError, OSError) as error:
        return Checked("spool", str(error))
    return Checked("spool", None)
