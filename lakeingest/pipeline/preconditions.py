"""The preconditions of a run: asked together, and named together with their fixes. `check` asks them, and some more."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pymysql

from lakeingest.config import Config
from lakeingest.core.condition import Checked
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable, PreflightFailed, Retryable, UnsupportedTable
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import Copies, copies
from lakeingest.lake.target import Target
from lakeingest.mysql.preflight import server as preflight
from lakeingest.mysql.preflight import tables as table_preflight
from lakeingest.mysql.preflight.generated_columns import GeneratedColumns
from lakeingest.quality import suites
from lakeingest.spark.session import lacking
from lakeingest.state.folder import lacks_room, unwritable

LEAST_FREE = 1 << 30  # Spark's own files and a few waves
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


def problems(checked: Iterable[Checked]) -> list[Checked]:
    """What keeps a run from beginning."""
    return [one for one in checked if one.finding and one.fatal]


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
    server, generated = server_of(config, connection, watched), GeneratedColumns(config.source, connection)
    checked, schemas = conditions_of(config, server, target, generated)
    new = [schema for table, schema in schemas.items() if table not in copied]
    checked.append(table_preflight.declared_keys(connection, new))
    checked += [*lake_of(held, foreign.intersection(chosen)), *folders(config), suites_of(config, known)]
    if spark:
        checked.append(Checked("Java and PySpark", lacking(config)))
    found = problems(checked)
    refused = {} if not found else _refused(config, server, target, generated, held, copied)
    shared = [one for one in found if one.name not in OF_ONE_TABLE]
    if found and (shared or refused.keys() >= set(chosen) or _lacks(server)):
        raise PreflightFailed(f"not ready: {' | '.join(one.finding or '' for one in found)}")
    return {table: one for table, one in schemas.items() if table in copied or table not in refused}, refused


@dataclass(frozen=True, slots=True)
class Joinable:
    """New tables: the definitions of those that can be copied, why others cannot, and those that have a copy."""

    schemas: Mapping[TableId, TableSchema]
    refused: Mapping[TableId, PreflightFailed]
    there: Collection[TableId]


def joinable(config: Config, connection: pymysql.Connection, target: Target, tables: Sequence[TableId]) -> Joinable:
    """Which of these tables, that no run knew before, can be copied; the preconditions are asked of each by itself."""
    held = copies(target, tables)
    if held.unopened is not None:
        raise held.unopened
    server, generated = server_of(config, connection, tables), GeneratedColumns(config.source, connection)
    refused = _refused(config, server, target, generated, held, held.there)
    left = [table for table in tables if table not in refused and table not in held.there]
    schemas, unreadable = table_preflight.read_schemas(connection, left, config.tables)
    gone = {
        table: PreflightFailed(f"{table} is not ready: {unreadable.finding}") for table in left if table not in schemas
    }
    return Joinable(schemas, refused | gone, held.there.keys())


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
        checked, schemas = conditions_of(config, server.watching((table,)), target, generated)
        if table not in copied:
            checked.append(table_preflight.declared_keys(server.connection, schemas.values()))
            checked += lake_of(held, [table] if table in held.refused else [])
        if found := [one.finding or "" for one in problems(checked)]:
            refused[table] = PreflightFailed(f"{table} is not ready: {' | '.join(found)}")
    return refused


def server_of(config: Config, connection: pymysql.Connection, tables: Sequence[TableId]) -> preflight.Server:
    """The server as its preconditions ask it, for these tables."""
    missing = [table for table in tables if config.tables.of(table).cascades == "missing"]
    return preflight.Server.of(connection, tables, missing)


def conditions_of(
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


def _typed(target: Target, schemas: Iterable[TableSchema]) -> Checked:
    """Every column has a type, and can have its name, in the target."""
    refused = []
    for schema in schemas:
        try:
            target.types(schema)
        except UnsupportedTable as error:
            refused.append(f"{schema.table}: {error}")
    return Checked("columns in the target", "; ".join(refused) or None)


def suites_of(config: Config, tables: Sequence[TableId]) -> Checked:
    """Whether the users' suites can be read, and each names one of the tables."""
    return Checked("quality suites", suites.finding(config.quality.suites, tables))


def lake_of(held: Copies, refused: Iterable[TableId]) -> list[Checked]:
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
