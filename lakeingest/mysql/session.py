"""The session of every connection to the source: every variable that a result depends on is pinned.

The server's defaults apply to each new session, and `init_connect` can change them for users without administrator's
rights. Then `sql_select_limit` could truncate each result without an error, `time_zone` could move timestamps, and
`completion_type` could leave transactions open. So these variables are pinned: they are set, for the session alone, on
each connection after its login. The documented rights suffice for that. A variable that a session with these rights
cannot change is checked by preflight. `docs/session-variables.yml` lists every variable of the servers, and a test
tries each of them.

Setting a variable proves nothing, because a proxy between us and the server may give the statement to another session.
So the values that results depend on are read again in each read view, before the rows, by a statement that is needed
there in any case. Nobody else can change the variables of a session, and a proxy does not change the session within the
view's transaction. A server ends a result early only because of a LIMIT: that of the statement, or `sql_select_limit`.
Anything else that stops a result is an error, which the server sends in place of the result's end. So a result that is
read in such a view and ends without an error has all rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.dialect import MARIADB, dialect_of, version_of


@dataclass(frozen=True, slots=True)
class Pin:
    """A session variable, and the value that each session gets, as the server shows it. `why` completes "else …".

    `since` is the first version of the server that has the variable; () stands for all versions. `depends`: results
    depend on the variable, so its value is read again. Most variables without `depends` are limits and timeouts, which
    the server may round.
    """

    name: str
    value: str
    why: str
    since: tuple[int, ...] = ()
    depends: bool = True


_ALL_ROWS = str(2**64 - 1)  # the server's value for "no limit"
_DEFAULT = "DEFAULT"

BOTH = (
    # autocommit is set twice, because the change from 0 to 1 commits a transaction that init_connect may have
    # begun. The driver does not set autocommit if the greeting says that it is on, but the session may have it off.
    Pin("autocommit", "0", "a transaction of init_connect goes on", depends=False),
    Pin("autocommit", "1", "all statements see the data of the first one"),
    Pin("completion_type", "NO_CHAIN", "COMMIT begins another transaction, or ends the connection"),
    Pin("sql_select_limit", _ALL_ROWS, "results are truncated without an error"),
    Pin("max_join_size", _ALL_ROWS, "statements are refused whose estimate is above it"),
    Pin("sql_big_selects", "1", "statements are refused whose estimate is above max_join_size"),
    Pin("sql_mode", "", "quotes and operators have other meanings, CHAR has its padding"),
    Pin("time_zone", "+00:00", "timestamps are moved"),
    Pin("character_set_client", "utf8mb4", "names and texts of statements are taken for others"),
    Pin("character_set_results", "utf8mb4", "texts lose characters"),
    Pin("character_set_connection", "utf8mb4", "checksums are made of texts that lost characters"),
    Pin("collation_connection", "utf8mb4_general_ci", "expressions compare texts otherwise"),
    Pin("timestamp", _DEFAULT, "the clock of the server stands still", depends=False),
    Pin("sql_auto_is_null", "0", "IS NULL finds the last row that was inserted"),
    Pin("sql_buffer_result", "0", "results are stored in a temporary table first"),
    Pin("sql_quote_show_create", "1", "names in SHOW CREATE are not quoted"),
    Pin("lc_messages", "en_US", "errors that are told apart by their text have another one"),
    # else long keys that begin with the same bytes would have no order; the sort buffer must hold such keys
    Pin("max_sort_length", "16384", "ORDER BY takes long keys for equal", depends=False),
    Pin("sort_buffer_size", str(4 << 20), "long keys cannot be sorted", depends=False),
    Pin("optimizer_search_depth", "62", "questions to information_schema take half a minute", depends=False),
    # The wait for a table that other sessions lock is short, so that it does not hold up other tables. The other
    # timeouts are long, because a connection may wait for a long merge, and the server for a slow reader.
    Pin("lock_wait_timeout", "20", "a locked table holds up the others, or is given up at once", depends=False),
    Pin("wait_timeout", "28800", "connections end while a merge takes long", depends=False),
    Pin("net_read_timeout", "600", "slow connections end", depends=False),
    Pin("net_write_timeout", "600", "results end with an error while the reader is busy", depends=False),
)
ON_MYSQL = (
    Pin("transaction_isolation", "REPEATABLE-READ", "no read view is opened"),
    Pin("max_execution_time", "0", "statements are interrupted"),
    Pin("use_secondary_engine", "OFF", "rows come from a secondary engine, which lags and has no read views"),
    Pin("information_schema_stats_expiry", "0", "sizes of tables may be a day old"),
    Pin("show_gipk_in_create_table_and_information_schema", "1", "generated keys are not listed", since=(8, 0, 30)),
    Pin("show_create_table_verbosity", "0", "definitions have additions"),
    Pin("range_optimizer_max_mem_size", "0", "a list of many keys reads the whole table", depends=False),
)
ON_MARIADB = (
    Pin("tx_isolation", "REPEATABLE-READ", "no read view is opened"),
    Pin("transaction_isolation", "REPEATABLE-READ", "no read view is opened", since=(11, 1)),  # the new name
    Pin("max_statement_time", "0.000000", "statements are interrupted"),
    Pin("system_versioning_asof", _DEFAULT, "rows of the past are read"),
    Pin("old_mode", "UTF8_IS_UTF8MB3", "names of charsets and casts of times have other meanings"),
    Pin("query_cache_type", "OFF", "results of earlier statements are taken"),
    Pin("max_session_mem_used", str(2**63 - 1), "statements that need memory are refused", depends=False),
    Pin("tmp_disk_table_size", _ALL_ROWS, "information_schema cannot be asked", depends=False),
    Pin("max_tmp_session_space_usage", "0", "large results are refused", since=(11, 5), depends=False),
    Pin("idle_transaction_timeout", "0", "read views end while the reader is busy", depends=False),
    Pin("idle_readonly_transaction_timeout", "0", "read views end while the reader is busy", depends=False),
)


@functools.cache
def pins_of(greeting: str) -> tuple[Pin, ...]:
    """The variables that are pinned on a server with this version in its greeting."""
    of_dialect = ON_MARIADB if dialect_of(greeting) is MARIADB else ON_MYSQL
    return tuple(pin for pin in (*BOTH, *of_dialect) if version_of(greeting) >= pin.since)


def setting(pins: Sequence[Pin]) -> str:
    """The statement that pins a session."""
    return f"SET {', '.join(f'SESSION {pin.name} = {_literal(pin.value)}' for pin in pins)}"


def pinned_columns(pins: Sequence[Pin]) -> list[str]:
    """The columns of a SELECT that reads the pinned variables on which results depend."""
    return [f"@@session.{pin.name}" for pin in pins if pin.depends]


def require_pinned(pins: Sequence[Pin], values: Sequence[str]) -> None:
    """Raise OperatorNeeded if a pinned variable has another value. `values` are those of `pinned_columns`, in order."""
    checked = [pin for pin in pins if pin.depends]  # `pinned_columns` selects only these
    changed = [f"{pin.name} = '{value}'" for pin, value in zip(checked, values, strict=True) if value != pin.value]
    if changed:
        raise OperatorNeeded(
            f"the session has {', '.join(changed)}, which lakeingest had set otherwise: a proxy in between mixes"
            " sessions or drops statements; connect to the server itself"
        )


def _literal(value: str) -> str:
    """The value in SQL: a number or DEFAULT as it is, any other value as a text."""
    return value if value == _DEFAULT or value.replace(".", "").isdigit() else f"'{value}'"
