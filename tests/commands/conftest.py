"""A database on a real server, and a pipeline.yml for it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeingest.demo.server import LocalServer
from tests.mysql.database import Db, database_on


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database with one table on the shared server."""
    with database_on(mysql_server) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 1), (2, 2)")
        yield database


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    """Call it with a database, and keys that are other than usual: a pipeline.yml in an empty folder."""

    def write(db: Db, **keys: Any) -> Path:
        source = db.source
        account = {"host": source.host, "port": source.port, "user": source.user}
        doc = {
            "name": "check",
            "source": {**account, "password": source.password.get_secret_value()},
            "tables": {"include": [f"{db.name}.*"]},
        }
        path = tmp_path / "pipeline.yml"
        path.write_text(json.dumps(doc | keys))
        return path

    return write
