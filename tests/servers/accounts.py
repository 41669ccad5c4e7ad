"""The account of a pipeline in tests: it has exactly the rights of the statements that `init` writes."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pymysql
from pydantic import SecretStr

from lakeingest.commands.init import init
from lakeingest.config import Source
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.mysql.dialect import MARIADB, dialect

COPIER, PASSWORD = "copier", "of tests"
DATABASES = r"`e2e\_%`"  # the names of the databases that end-to-end tests make, as GRANT takes them


def statements(*, is_mariadb: bool, user: str = COPIER, databases: str = DATABASES) -> list[str]:
    """The GRANT statements that `init` writes, for this user and these databases."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yml"
        init(path, None, {})
        text = path.read_text()
    server = "MariaDB" if is_mariadb else "MySQL"
    found = re.findall(f"^ *# *(GRANT .*);  -- {server}$", text, re.MULTILINE)
    assert len(found) == 2, text
    return [one.replace("`shop`", databases).replace("'lake'@'%'", f"'{user}'@'%'") for one in found]


def make_copier(connection: pymysql.Connection, databases: str = DATABASES) -> None:
    """Make the account by an administrator's connection, unless it is there, and grant it these databases."""
    query(connection, f"CREATE USER IF NOT EXISTS {COPIER} IDENTIFIED BY '{PASSWORD}'")
    for one in statements(is_mariadb=dialect(connection) is MARIADB, databases=databases):
        query(connection, one)


def copier_of(server: LocalServer, databases: str = DATABASES) -> Source:
    """The server as the source of a pipeline, with the account, which is made if it is not there."""
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        make_copier(connection, databases)
    return Source(host=server.host, port=server.port, user=COPIER, password=SecretStr(PASSWORD))
