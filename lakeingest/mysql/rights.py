"""The rights that a pipeline's user needs on the source, as statements for its administrator."""

import re
from collections.abc import Iterable

import pymysql

from lakeingest.core.keys import quote
from lakeingest.mysql.connection import literal, query, query_row
from lakeingest.mysql.dialect import Dialect


def account_of(connection: pymysql.Connection) -> str:
    """The account of a connection's user, as GRANT names it."""
    user, _, host = str(query_row(connection, "SELECT CURRENT_USER()", 1)[0]).rpartition("@")
    return f"{literal(user)}@{literal(host)}"


def grant_statements(
    dialect: Dialect, account: str, databases: Iterable[str], *, names_are_patterns: bool = True
) -> list[str]:
    """The GRANT statements for the account of a user who copies tables of these databases.

    `names_are_patterns` is that of `grant_select`. For a server that cannot be asked it is True, because servers take
    names for patterns by default.
    """
    rights = ", ".join((*dialect.more_rights, *dialect.rights))
    return [
        *(grant_select(account, database, names_are_patterns=names_are_patterns) for database in databases),
        f"GRANT {rights} ON *.* TO {account}",
    ]


def grant_select(account: str, database: str, *, names_are_patterns: bool) -> str:
    """The GRANT statement of SELECT for the tables of one database.

    `names_are_patterns`: the server takes `_` and `%` in the name for wildcards, so they are escaped. If False, nothing
    is escaped: MySQL with partial_revokes takes the name as it is (MySQL manual, "Privilege Restriction Using Partial
    Revokes").
    """
    name = re.sub(r"([_%\\])", r"\\\1", database) if names_are_patterns else database
    return f"GRANT SELECT ON {quote(name)}.* TO {account}"


def has_patterns(connection: pymysql.Connection) -> bool:
    """Whether GRANT on this server takes `_` and `%` in names of databases for wildcards.

    False only for a server with partial_revokes = ON.
    """
    return not any(str(value) == "ON" for _, value in query(connection, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'"))
