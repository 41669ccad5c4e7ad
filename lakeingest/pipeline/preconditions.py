"""The preconditions of a run. All are checked; those that are not met are reported together, each with its fix."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from lakeingest.config import Config
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable, PreflightFailed, Retryable, UnsupportedTable
from lakeingest.files.file import File, at, state_of
from lakeingest.lake.formats import unwritable as unwritable_store
from lakeingest.lake.places import nested_folders
from lakeingest.lake.preflight import Copies, copies
from lakeingest.lake.target import Target
from lakeingest.mysql.preflight import foreign_keys
from lakeingest.mysql.preflight import server as conditions
from lakeingest.mysql.preflight import tables as table_conditions
from lakeingest.mysql.preflight.generated_columns import GeneratedColumns
from lakeingest.mysql.preflight.replica import replica_conditions
from lakeingest.mysql.preflight.throttle import throttle_conditions
from lakeingest.mysql.source import Source
from lakeingest.pipeline.run.foreign_tables import refusals
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.quality import suites
from lakeingest.spark.session import spark_finding
from lakeingest.spark.settings import needs_session
from lakeingest.state.folder import privacy_finding, space_finding, write_finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_FREE = 1 << 30  # for Spark's own files and a few waves
# These conditions concern each table alone: if one table does not meet them, the others can still be copied.
OF_ONE_TABLE = {
    *table_conditions.CONDITIONS,
    foreign_keys.NAME,
    "keys and types",
    "generated columns",
    "columns in quality suites",
    "columns in the target",
    "columns in partition_by and sort_by",
    "keys that are named",
    "tables of other tools",
    "target tables",
}


def problems(checked: Iterable[Checked]) -> list[Checked]:
    """The fatal conditions that are not met: a run does not begin while there is one."""
    return [condition for condition in checked if condition.finding and condition.fatal]


def require(
    config: Config,
    source: Source,
    known: Sequence[TableId],
    chosen: Collection[TableId],
    *,
    spark: bool,
    done: Collection[TableId] = (),
) -> tuple[dict[TableId, TableSchema], dict[TableId, PreflightFailed]]:
    """Check all preconditions of a run. `spark`: True if the run itself has to start a session of Spark.

    `known`: the tables that a run may change. `done`: other tables of the pipeline, which no run changes any more.
    Returns the definitions of the tables that the run watches: the `chosen` tables that can be copied, and all tables
    with a copy. Returns also, for each table that cannot be copied, the reason.

    Raises:
        PreflightFailed: an unmet precondition concerns all tables, or no chosen table can be copied. The message has
            all unmet preconditions.
        Retryable: another process holds the catalog.

    """
    # Step 1: the tables that the run watches
    preflight = Preflight.of(config, source, known)
    if isinstance(preflight.held.unopened, Retryable):
        raise preflight.held.unopened
    no_copy = NotOurTable, UnsupportedTable  # the lake has a table of the same name that is no copy of the source's
    foreign = {table for table, error in preflight.held.refused.items() if isinstance(error, no_copy)}
    copied = {*preflight.held.staged, *preflight.held.refused} - foreign
    watched = copied.union(chosen)
    preflight = preflight.of_tables([table for table in known if table in watched])
    # Step 2: check all of them at once
    checked, schemas = preflight.of_source_and_lake(foreign.intersection(chosen), copied)
    checked += [*folders(config), suites_of(config, [*known, *done])]
    if spark:
        checked.append(spark_of(config))
    # Step 3: if conditions are unmet, find out for which tables; the other tables can go on
    unmet = problems(checked)
    refused = _refused_tables(preflight, copied) if unmet else {}
    refused |= _changed_meanwhile(chosen, {*schemas, *refused})
    shared = [condition for condition in unmet if condition.name not in OF_ONE_TABLE]
    none_can_go_on = refused.keys() >= set(chosen)
    if unmet and (shared or none_can_go_on or _is_unmet_by_server(preflight.server)):  # then nothing can go on
        raise PreflightFailed(f"not ready: {' | '.join(condition.finding or '' for condition in unmet)}")
    # a refused table with a copy is watched, too
    return {table: schema for table, schema in schemas.items() if table in copied or table not in refused}, refused


@dataclass(frozen=True, slots=True)
class Joinable:
    """The result of the preconditions for new tables.

    `schemas`: the definitions of the tables that can be copied. `refused`: for each other table, why it cannot be
    copied. `copied`: the tables of which the lake already has a copy.
    """

    schemas: Mapping[TableId, TableSchema]
    refused: Mapping[TableId, PreflightFailed]
    copied: Collection[TableId]


def joinable(config: Config, source: Source, tables: Sequence[TableId]) -> Joinable:
    """Which of these new tables of a run can be copied. The preconditions are checked for each table alone.

    Raises the error with which the catalog cannot be opened.
    """
    preflight = Preflight.of(config, source, tables)
    if preflight.held.unopened is not None:
        raise preflight.held.unopened
    copied = preflight.held.staged.keys()
    refused = _refused_tables(preflight.of_tables(tables), copied)
    accepted = [table for table in tables if table not in refused and table not in copied]
    schemas: dict[TableId, TableSchema] = {}
    if accepted:
        _, schemas = preflight.of_tables(accepted).of_source_and_lake([], copied)
    return Joinable(schemas, refused | _changed_meanwhile(accepted, schemas), copied)


def refusal(config: Config, source: Source, table: TableId) -> PreflightFailed | None:
    """Why a table with a copy cannot be copied again by its current definition; None if it can."""
    preflight = Preflight.of(config, source, [table])
    return _refused_tables(preflight, copied=()).get(table)  # the copy is not continued


def _changed_meanwhile(tables: Collection[TableId], known: Collection[TableId]) -> dict[TableId, PreflightFailed]:
    """An error for each of `tables` that is not in `known`: the table was dropped or altered during the checks."""
    why = "is not ready: its definition changed in between; run the same command again"
    return {table: PreflightFailed(f"{table} {why}") for table in tables if table not in known}


def _is_unmet_by_server(server: conditions.Server) -> bool:
    """Whether a condition on tables is unmet even if no table is asked about: then the server itself is the reason."""
    return any(condition.finding for condition in conditions.ask(server.with_tables(()), table_conditions.CONDITIONS))


def _refused_tables(preflight: "Preflight", copied: Collection[TableId]) -> dict[TableId, PreflightFailed]:
    """The tables that do not meet a condition, each with all its reasons.

    `copied`: the tables whose copies are continued. Any other table is also refused if the lake has an unusable table
    under its name.
    """
    refused = {}
    for table in preflight.server.tables:
        is_taken = table in preflight.held.refused and table not in copied  # by an unusable table of the lake
        checked, _ = preflight.of_tables([table]).of_source_and_lake([table] if is_taken else [], copied)
        if findings := [condition.finding or "" for condition in problems(checked)]:
            refused[table] = PreflightFailed(f"{table} is not ready: {' | '.join(findings)}")
    return refused


@dataclass(frozen=True, slots=True)
class Preflight:
    """The facts from which the preconditions of some tables are checked: the server, the lake, and its copies (`held`).

    `beside`: the checked conditions on a replica and on `throttle`, which are the same for all tables.
    """

    config: Config
    server: conditions.Server
    beside: tuple[Checked, ...]
    target: Target
    generated: GeneratedColumns
    held: Copies

    @classmethod
    def of(cls, config: Config, source: Source, tables: Sequence[TableId]) -> Self:
        """The preflight of these tables."""
        server, target = conditions.Server.of(source.connection, tables), open_target(config)
        generated = GeneratedColumns(source.settings, source.connection)
        held = copies(target, tables)
        # new tables are also refused if their folders would be nested
        new = [table for table in tables if table not in held.staged]
        held = replace(held, refused={**nested_folders(config, new), **held.refused})
        beside = replica_conditions(source.settings, server)
        beside += throttle_conditions(source.settings, config.throttle, source.connection)
        return cls(config, server, beside, target, generated, held)

    def of_tables(self, tables: Sequence[TableId]) -> Self:
        """The preflight of fewer tables."""
        return replace(self, server=self.server.with_tables(tuple(tables)))

    def of_source_and_lake(
        self, refused: Iterable[TableId], copied: Collection[TableId] = ()
    ) -> tuple[list[Checked], dict[TableId, TableSchema]]:
        """The conditions on server, tables and lake, and the definitions of the tables that can be copied.

        `refused`: the tables whose name is taken in the lake by an unusable table. `copied`: tables for which the
        conditions on new tables, such as those on keys, are not checked again.
        """
        schemas, usable = table_conditions.read_schemas(self.server.connection, self.server.tables, self.config.tables)
        new = [schema for table, schema in schemas.items() if table not in copied]
        return [
            *conditions.ask(self.server, conditions.CONDITIONS | table_conditions.CONDITIONS),
            *self.beside,
            foreign_keys.cascades(self.server, self.config.tables),
            usable,
            self.generated.checked(schemas.values()),
            _columns_in_target(self.target, schemas.values()),
            _columns_in_partitions(self.config, new),
            _tables_of_others(self.config, new),
            Checked("columns in quality suites", suites.unknown_columns(self.config.quality, schemas)),
            table_conditions.declared_keys(self.server.connection, new),
            table_conditions.keys_with_several_codes(self.server, new),
            table_conditions.chosen_columns(schemas.values()),
            table_conditions.zero_date_defaults(self.server, schemas.values()),
            *lake_of(self.held, refused),
            _publishes_at_once(self.config, self.target, self.held),
        ], schemas


def _columns_in_target(target: Target, schemas: Iterable[TableSchema]) -> Checked:
    """The condition that every column has a type in the target, and can have its name there."""
    refused = []
    for schema in schemas:
        try:
            target.types(schema)
        except UnsupportedTable as error:
            refused.append(f"{schema.table}: {error}")
    return Checked("columns in the target", "; ".join(refused) or None)


def _columns_in_partitions(config: Config, schemas: Iterable[TableSchema]) -> Checked:
    """The condition that copies can be divided and sorted as `partition_by` and `sort_by` say."""
    found = {schema.table: config.tables.of(schema.table).refusal_of_form(schema) for schema in schemas}
    reasons = [f"{table}: {reason}" for table, reason in found.items() if reason is not None]
    return Checked("columns in partition_by and sort_by", "; ".join(reasons) or None)


def _tables_of_others(config: Config, schemas: Iterable[TableSchema]) -> Checked:
    """The condition that tables of other tools can become copies, if `tables.startup` is adopt."""
    found = refusals(config, schemas)
    return Checked("tables of other tools", "; ".join(f"{table}: {reason}" for table, reason in found.items()) or None)


def suites_of(config: Config, tables: Sequence[TableId]) -> Checked:
    """The condition that the users' suites can be read, and that each names a table that is copied."""
    return Checked("quality suites", suites.finding(config.quality, tables))


def lake_of(held: Copies, refused: Iterable[TableId]) -> list[Checked]:
    """The conditions that the catalog can be opened, and that no table in `refused` has an unusable table there."""
    catalog = Checked("catalog", None) if held.unopened is None else Checked.failed("catalog", held.unopened)
    errors = [held.refused[table] for table in sorted(refused)]
    return [catalog, Checked.failed("target tables", *errors) if errors else Checked("target tables", None)]


def _publishes_at_once(config: Config, target: Target, held: Copies) -> Checked:
    """The condition that the catalog can do what `target.publish_together` asks for. Only a REST server may lack it."""
    is_refused = (
        config.target.publish_together
        and config.target.catalog.type == "rest"
        and held.unopened is None
        and target.joint is None
    )
    why = (
        "target.publish_together: the server of the catalog does not offer to commit several tables at once"
        " (POST transactions/commit); leave the key out"
    )
    return Checked("publishes at once", why if is_refused else None)


def folders(config: Config, size: int = 0) -> Iterator[Checked]:
    """The conditions on the folders to which a run writes: they are writable and private, and have free space.

    Less free space than LEAST_FREE is fatal. Less than `size` bytes is a warning.
    """
    local_folders: list[tuple[str, File]] = [("state folder", state_of(config))]
    if config.target.warehouse.scheme is None:
        local_folders.append(("warehouse", at(config.target.warehouse, config.target.storage)))
    else:
        # not fatal with a REST catalog, because it may lend credentials that are for the tables alone
        yield Checked("warehouse", unwritable_store(config), fatal=config.target.catalog.type != "rest")
    yield Checked("privacy of the state folder", privacy_finding(state_of(config)), fatal=False)
    for name, folder in local_folders:
        yield Checked(name, write_finding(name, folder))
        full = space_finding(folder, LEAST_FREE)
        yield Checked(f"room in the {name}", full or space_finding(folder, size), fatal=full is not None)


def spark_of(config: Config, session: "SparkSession | None" = None) -> Checked:
    """The condition that a session can be started, or that the given `session` has all settings lakeingest needs.

    If no session can be started, this is only a warning for a pipeline whose runs need none as a rule.
    """
    finding = spark_finding(config, session)
    if finding is not None and session is None and not needs_session(config):
        without = "this pipeline runs without it; quality suites, Pipeline.spark and Hudi tables need it"
        return Checked("Java and PySpark", f"{finding}; {without}", fatal=False)
    return Checked("Java and PySpark", finding)
