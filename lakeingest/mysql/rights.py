"""The rights that a pipeline's user needs on the source, as statements for its administrator."""

import re
from collections.abc import Iterable

import pymysql

from lakeingest.core.keys import quote
from lakeingest.mysql.connection import literal, query_row
from lakeingest.mysql.dialect import Dialect


def account_of(connection: pymysql.Connection) -> str:
    """The account of a connection's user, as GRANT names it."""
    user, _, host = str(query_row(connection, "SELECT CURRENT_USER()", 1)[0]).rpartition("@")
    return f"{literal(user)}@{literal(host)}"


def granting(dialect: Dialect, account: str, databases: Iterable[str]) -> list[str]:
    """The GRANT statements for the account of a user who copies tables of these databases."""
    rights = ", ".join((*dialect.more_rights, *dialect.rights))
    return [
        *(granting_select(account, database) for database in databases),
        f"GRANT {rights} ON *.* TO {account}",
    ]


def granting_select(account: str, database: str) -> str:
    """The GRANT statement for all tables of a database: of no other, though `_` and `%` stand for any sign there."""
    escaped = re.sub(r"([_%\\])", r"\\\1", database)
    return f"GRANT SELECT ON {quote(escaped)}.* TO {account}"
