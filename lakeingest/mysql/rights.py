"""The rights that a pipeline's user needs on the source, as statements for its administrator."""

import re
from collections.abc import Callable, Iterable

import pymysql

from lakeingest.core.tables.keys import quote
from lakeingest.mysql.connection import literal, query, query_row
from lakeingest.mysql.dialect import Dialect

_GIVES = ("GRANT ", "SET DEFAULT ROLE ")  # the beginnings of lines of SHOW GRANTS that take no right away
_GRANT = re.compile(r"GRANT (?P<rights>[A-Z, ]+) ON (?P<place>\*|`(?:[^`]|``)*`)\.\* TO ")
_READS = {"SELECT", "ALL PRIVILEGES"}


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
    return f"GRANT SELECT ON {quote(_granted_name(database, are_patterns=names_are_patterns))}.* TO {account}"


def has_patterns(connection: pymysql.Connection) -> bool:
    """Whether GRANT on this server takes `_` and `%` in names of databases for wildcards.

    False only for a server with partial_revokes = ON.
    """
    return not any(str(value) == "ON" for _, value in query(connection, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'"))


def databases_read(connection: pymysql.Connection) -> Callable[[str], bool]:
    """A function that tells whether the connection's user can read all tables of a database, with all their columns.

    The answer is True only if there is a grant on all databases, or on this database by its name. False proves nothing:
    there are also rights that roles or patterns give, and rights on single tables. If SHOW GRANTS has anything that
    takes rights away, such as a partial revoke, the answer is False for each database.
    """
    lines = [str(line) for (line,) in query(connection, "SHOW GRANTS")]
    if not all(line.startswith(_GIVES) for line in lines):
        return lambda database: False  # noqa: ARG005 - of any database
    granted = filter(None, map(_GRANT.match, lines))
    places = {found["place"] for found in granted if not _READS.isdisjoint(found["rights"].split(", "))}
    names_are_patterns = has_patterns(connection)
    # the server prefers a grant on the database's own name to grants on patterns, so these cannot narrow it
    return lambda database: "*" in places or quote(_granted_name(database, are_patterns=names_are_patterns)) in places


def _granted_name(database: str, *, are_patterns: bool) -> str:
    """The name of one database in GRANT; `are_patterns`: the `names_are_patterns` of `grant_select`."""
    return re.sub(r"([_%\\])", r"\\\1", database) if are_patterns else database
