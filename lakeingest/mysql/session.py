"""The session of every connection to the source: nothing that a result depends on is left to the server.

A server gives each new session its own defaults, and `init_connect` may change them for users without administrator's
rights. `sql_select_limit` truncates each result without an error then, `time_zone` moves timestamps, `completion_type`
leaves transactions open. So what matters is pinned: it is set, for the session alone, on each connection that opens,
after the login. All of it can be set with the documented rights. What a session with these rights cannot change is
checked by preflight instead. `docs/session-variables.yml` lists every variable of the servers, and a test tries each.

Setting is not proof: a proxy between us and the server may give a statement to another session. So the values that
results depend on are read again in each read view, by a statement that is sent there anyway, before the rows are asked
for. Nobody else can change the variables of a session, and the view's transaction holds it. The server itself ends a
result early only by a LIMIT, that of the statement or `sql_select_limit`; everything else that stops it is an error,
which it sends in place of the result's end. So rows that are read in such a view and end as they should are all rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.dialect import MARIADB, dialect_of, version_of


@dataclass(frozen=True, slots=True)
class Pin:
    """A session variable, and the value that each session has, as the server shows it; `why` completes "else …".

    `since` is the first version of the server that has it. A result `depends` on it, or it is a limit or a timeout,
    which the server may round.
    """

    name: str
    value: str
    why: str
    since: tuple[int, ...] = ()
    depends: bool = True


_ALL_ROWS = str(2**64 - 1)  # what the server has for "no limit"
_DEFAULT = "DEFAULT"

BOTH = (
    # twice: from 0 to 1 it also commits what init_connect began; and the driver does not set it where the server's
    # greeting says that it is on, which does not hold for the session
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
    # long keys with a common beginning are no order; and the buffer holds such keys
    Pin("max_sort_length", "16384", "ORDER BY takes long keys for equal", depends=False),
    Pin("sort_buffer_size", str(4 << 20), "long keys cannot be sorted", depends=False),
    Pin("optimizer_search_depth", "62", "questions to information_schema take half a minute", depends=False),
    # a wait for a table that other sessions lock is short, so that other tables can go on; the other timeouts are long:
    # a connection may wait for a long merge, and the server for a slow reader
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
    """What is pinned in a session of the server that greets with this version."""
    own = ON_MARIADB if dialect_of(greeting) is MARIADB else ON_MYSQL
    return tuple(pin for pin in (*BOTH, *own) if version_of(greeting) >= pin.since)


def setting(pins: Sequence[Pin]) -> str:
    """The statement that pins a session."""
    return f"SET {', '.join(f'SESSION {pin.name} = {_literal(pin.value)}' for pin in pins)}"


def asked(pins: Sequence[Pin]) -> list[str]:
    """The columns of a SELECT whose values `require` takes."""
    return [f"@@session.{pin.name}" for pin in pins if pin.depends]


def require(pins: Sequence[Pin], values: Sequence[str]) -> None:
    """OperatorNeeded where the session has other values than those that it was given."""
    proven = [pin for pin in pins if pin.depends]
    other = [f"{pin.name} = '{found}'" for pin, found in zip(proven, values, strict=True) if found != pin.value]
    if other:
        raise OperatorNeeded(
            f"the session has {', '.join(other)}, which lakeingest had set otherwise: a proxy in between mixes"
            " sessions or drops statements; connect to the server itself"
        )


def _literal(value: str) -> str:
    return value if value == _DEFAULT or value.replace(".", "").isdigit() else f"'{value}'"
