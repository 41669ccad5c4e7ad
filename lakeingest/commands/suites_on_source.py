"""The users' suites on a sample of the source, before a copy exists: conditions of `check --suites`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakeingest.commands.drawn_rows import ROWS, DrawnRows, draw_rows
from lakeingest.config import Config
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ConfigError, LakeIngestError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.quality.gates import run_gate
from lakeingest.quality.suites import Suite, about_rows, user_suites
from lakeingest.spark.arrow_rows import as_dataframe
from lakeingest.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "suites on the source"


def suite_conditions(config: Config, session: "SparkSession | None" = None) -> Iterator[Checked]:
    """The condition, for each table with suites, that a sample of its rows in the source passes these suites.

    Great Expectations evaluates them as in a gate, on the given Spark `session`; None: on a new session. Expectations
    that are only warnings, and those that a sample cannot answer, are conditions that are not fatal. If a table cannot
    be read, its condition has the reason. Suites that cannot be read are left to the condition `quality suites`.
    """
    has_suites = False
    try:
        with BinlogSource.open(config.source) as source:
            for table in config.tables.select(source.tables()):
                try:
                    if not (suites := user_suites(config.quality, table)):
                        continue
                except ConfigError:
                    continue
                has_suites = True
                with source.named_errors():
                    yield from _of_table(config, source, table, suites, session)
    except LakeIngestError as error:
        yield Checked(NAME, str(error))
        return
    if not has_suites:
        yield Checked(NAME, "no table has a suite that can be read", fatal=False)


def _of_table(
    config: Config, source: BinlogSource, table: TableId, suites: tuple[Suite, ...], session: "SparkSession | None"
) -> Iterator[Checked]:
    """The conditions of one table."""
    try:
        schema = source.schema(table, config.tables.of(table).choices)
        drawn = draw_rows(config, source, schema, ROWS, None)  # None: a new seed
    except LakeIngestError as error:
        yield Checked(f"suites of {table}", f"the source cannot be asked: {error}")
        return
    yield from conditions_of(config, drawn, suites, session or open_session(config))


def conditions_of(
    config: Config, drawn: DrawnRows, suites: tuple[Suite, ...], session: "SparkSession"
) -> Iterator[Checked]:
    """The conditions that drawn rows pass the suites of their table."""
    table, key = drawn.schema.table, drawn.schema.key
    name = f"suites of {table} on {drawn}"
    if not drawn.is_whole:
        suites, left_out = about_rows(suites)
        if left_out:
            finding = f"{', '.join(left_out)}: a sample cannot answer that; a gate does"
            yield Checked(f"suites of {table} on the whole table", finding, fatal=False)
        if not suites:
            return
    report = run_gate(name, as_dataframe(session, drawn.rows), key, suites, samples=config.quality.samples)
    yield Checked(name, "; ".join(map(str, report.failures)) or None)
    if report.warnings:
        yield Checked(f"warnings of {name}", "; ".join(map(str, report.warnings)), fatal=False)
