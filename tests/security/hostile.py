"""Names and texts that somebody who may create tables can choose, and a pipeline over databases with such names."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pydantic import SecretStr

from lakeingest.commands.run import RunResult, run
from lakeingest.config import Config, parse_config
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import Event
from lakeingest.pipeline.opening import opening

PLAIN = TableId("plain", "t")  # is copied, whatever stands beside it


@dataclass
class Tables:
    """Tables of two rows in databases of their own, and a pipeline that copies all of them."""

    server: LocalServer
    connection: pymysql.Connection
    folder: Path
    made: list[TableId] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def make(self, *names: tuple[str, str]) -> None:
        """Make tables of these databases and names."""
        for database, name in names:
            table = f"{quote(database)}.{quote(name)}"
            query(self.connection, f"CREATE DATABASE IF NOT EXISTS {quote(database)}")
            query(self.connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
            query(self.connection, f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
            self.made.append(TableId(database, name))

    def config(self, **target: Any) -> Config:
        """The pipeline; `target` as in pipeline.yml."""
        config = parse_config(self._doc(target), self.folder, {})
        account = {"password": SecretStr(self.server.password)}
        return config.model_copy(update={"source": config.source.model_copy(update=account)})

    def write(self) -> None:
        """Write the pipeline into its folder, for commands."""
        doc = self._doc({})
        doc["source"]["password"] = self.server.password
        (self.folder / "pipeline.yml").write_text(json.dumps(doc))

    def _doc(self, target: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "name": "names",
            "source": {"host": self.server.host, "port": self.server.port, "user": self.server.user},
            "tables": {"include": [f"re:{re.escape(str(table))}" for table in self.made]},
            "target": dict(target),
        }

    def copied(self, config: Config) -> tuple[Mapping[TableId, int], str]:
        """The rows that a run has published of each table, and what it says of the tables that stopped."""
        try:
            with pytest.MonkeyPatch.context() as patch:  # other tests may have left a session with another lake
                patch.setattr(opening, "is_session_due", lambda: False)
                result, reason = run(config, observe=self.events.append), ""
        except LakeIngestError as error:
            if not isinstance(error.result, RunResult):
                raise
            result, reason = error.result, "\n".join([str(error), *(stop.message for stop in error.result.stopped)])
        return {table.table: table.rows for table in result.tables if table.published}, reason


@contextmanager
def tables_on(server: LocalServer, folder: Path, *names: tuple[str, str]) -> Iterator[Tables]:
    """Tables of these names, and the plain one, which are there while the block runs."""
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        made = Tables(server, connection, folder)
        try:
            made.make(*names, (PLAIN.database, PLAIN.name))
            # a run reads from the start of the file, and for much that others wrote it would start Spark
            query(connection, "FLUSH BINARY LOGS")
            yield made
        finally:
            for database in {table.database for table in made.made}:
                query(connection, f"DROP DATABASE {quote(database)}")
