"""Fixtures of all tests with a MySQL."""

from collections.abc import Iterator

import pytest

from lakeingest.demo.server import LocalServer
from tests.mysql.database import Db, database_on


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database
