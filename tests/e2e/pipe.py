"""What an end-to-end test drives: statements on a source, runs and verifications of its copy."""

from dataclasses import dataclass
from typing import Any

import pymysql
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeingest.commands.run import RunResult, run
from lakeingest.commands.verification import TableVerification
from lakeingest.commands.verify import verify
from lakeingest.config import Config, Source
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File, state_of
from lakeingest.pipeline.events import Event, Observer
from tests.conftest import GTIDS
from tests.faults.purged import purge
from tests.lake.shown import shown


@dataclass
class Pipe:
    """A database on a server, a config for it and a state folder of its own; the warehouse is shared."""

    config: Config
    database: str
    connection: pymysql.Connection
    spark: SparkSession
    events: list[Event]

    @property
    def state(self) -> File:
        """The state folder."""
        return state_of(self.config)

    @property
    def administrator(self) -> Source:
        """The source with the account that `sql` has, for others who write."""
        by: Any = self.connection  # the driver's attributes have no types
        account = {"user": by.user.decode(), "password": SecretStr(by.password.decode())}
        return self.config.source.model_copy(update=account)

    def sql(self, *statements: str) -> None:
        """Run statements on the source, each a transaction of its own unless it begins one."""
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def unlogged(self, *statements: str) -> None:
        """Run statements that the source does not log."""
        self.sql("SET SESSION sql_log_bin = 0", *statements, "SET SESSION sql_log_bin = 1")
        self.begin_file()

    def begin_file(self) -> None:
        """Without GTIDs, let the source begin a binlog file, as the runbooks say before rows are read again."""
        if GTIDS:
            self.sql("FLUSH BINARY LOGS")

    def freeze(self) -> None:
        """Let no copy follow DDL from now on."""
        self.config = self.config.model_copy(update={"schema_changes": SchemaChanges(changes="freeze")})

    def purge(self) -> None:
        """The source drops all binlog files but the last."""
        purge(self.connection)

    def run(self, *tables: str, observe: Observer | None = None, max_minutes: float | None = None) -> RunResult:
        """One run; its events are kept."""

        def watch(event: Event) -> None:
            self.events.append(event)
            if observe is not None:
                observe(event)

        names = [f"{self.database}.{table}" for table in tables]
        return run(self.config, names, max_minutes, watch, self.spark)

    def verify(self, *tables: str) -> dict[str, TableVerification]:
        """One verification, by the table's name."""
        results = verify(self.config, [f"{self.database}.{table}" for table in tables], self.spark)
        return {result.table.name: result for result in results}

    def assert_equal(self, *tables: str) -> None:
        """Source = target for every table."""
        for name, result in self.verify(*tables).items():
            assert result.equal, (name, result.source, result.target, result.differences[:5])

    def seen(self, kind: type[Event]) -> list[Event]:
        """The events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """What a reader of the lake sees, sorted."""
        found = shown(self.spark, self.config.target, TableId(self.database, table)).collect()
        return sorted(tuple(row) for row in found)
