"""Fixtures of all tests with a server."""

from collections.abc import Iterator

import pytest

from lakeingest.demo.server import LocalServer
from tests.mysql.database import Db, database_on


@pytest.fixture
def mysql_db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared MySQL."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def db(mysql_db: Db) -> Db:
    """A database on the shared MySQL, where a module has no other."""
    return mysql_db


@pytest.fixture
def any_db(any_server: LocalServer) -> Iterator[Db]:
    """A database on a server of each flavor."""
    with database_on(any_server) as database:
        yield database
