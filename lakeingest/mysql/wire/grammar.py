"""The grammar of a binlog: which events are allowed in which state of a transaction, and the errors for all others."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakeingest.core.binlog.history import LastEvent
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.ddl.alteration import Alteration, Ddl
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import BinlogGone, SourceAway, UnsupportedEvent
from lakeingest.mysql.wire.alter import alteration_of, name_changes_of
from lakeingest.mysql.wire.ddl import folded, may_change
from lakeingest.mysql.wire.dml import Change, Reach, change_of
from lakeingest.mysql.wire.events import Beginning, Damaged, Event
from lakeingest.mysql.wire.locking import had_exclusive_lock
from lakeingest.mysql.wire.query import Query, read_query
from lakeingest.mysql.wire.statements import REFUSED, Statement, classify


class State(enum.IntEnum):
    """The state of the reader within a transaction."""

    OUTSIDE = 0  # between transactions
    BEGUN = 1  # after a GTID
    OPEN = 2  # after BEGIN
    PASSING = 3  # within a transaction that is skipped
    PREPARING = 4  # after XA START

    @property
    def in_words(self) -> str:
        """The state in words, for messages."""
        return {
            State.OUTSIDE: "between transactions",
            State.BEGUN: "after a GTID",
            State.OPEN: "after BEGIN",
            State.PASSING: "within a transaction that is skipped",
            State.PREPARING: "after XA START",
        }[self]


class Sign(enum.Enum):
    """The meaning of an event for the state: the input of the table NEXT."""

    FILE = enum.auto()
    GTID = enum.auto()
    BEGIN = enum.auto()
    SAVEPOINT = enum.auto()
    STATEMENT = enum.auto()
    ROWS = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    XA_START = enum.auto()
    XA_END = enum.auto()
    XA_PREPARE = enum.auto()
    XA_COMMIT = enum.auto()
    XA_ROLLBACK = enum.auto()
    PASSED = enum.auto()  # a statement that may change rows, passed over by a reader that reads no tables


# State and sign → next state; other pairs are not allowed. A transaction ends with the sign that leads to OUTSIDE.
NEXT: dict[tuple[State, Sign], State] = {
    (State.OUTSIDE, Sign.FILE): State.OUTSIDE,
    (State.OUTSIDE, Sign.GTID): State.BEGUN,
    (State.BEGUN, Sign.BEGIN): State.OPEN,
    (State.BEGUN, Sign.STATEMENT): State.OUTSIDE,
    (State.OPEN, Sign.STATEMENT): State.OPEN,  # CREATE TABLE … SELECT
    (State.OPEN, Sign.SAVEPOINT): State.OPEN,
    (State.OPEN, Sign.ROWS): State.OPEN,
    (State.OPEN, Sign.COMMIT): State.OUTSIDE,
    (State.OPEN, Sign.ROLLBACK): State.OUTSIDE,
    (State.BEGUN, Sign.XA_START): State.PREPARING,
    (State.PREPARING, Sign.SAVEPOINT): State.PREPARING,
    (State.PREPARING, Sign.ROWS): State.PREPARING,
    (State.PREPARING, Sign.XA_END): State.PREPARING,
    (State.PREPARING, Sign.XA_PREPARE): State.OUTSIDE,
    (State.BEGUN, Sign.XA_COMMIT): State.OUTSIDE,
    (State.BEGUN, Sign.XA_ROLLBACK): State.OUTSIDE,
    (State.BEGUN, Sign.PASSED): State.OUTSIDE,
    (State.OPEN, Sign.PASSED): State.OPEN,
    (State.PREPARING, Sign.PASSED): State.PREPARING,
}

# The signs of a prepared transaction → the signs that its events have when the transaction is read again at XA COMMIT
ONCE_COMMITTED = {Sign.XA_START: Sign.BEGIN, Sign.XA_END: Sign.SAVEPOINT, Sign.XA_PREPARE: Sign.COMMIT}
_ROW_FORMAT = "set binlog_format=ROW in every session of the source"
_VALUE = re.compile(r"""['"]|\bDEFAULT\b""", re.IGNORECASE)  # where a value may begin in a statement, or a quoted name
NO_XA = ("an XA transaction", "use none on the source: this server does not let them be copied exactly")
XA = frozenset({*ONCE_COMMITTED, Sign.XA_COMMIT, Sign.XA_ROLLBACK})

SIGNS: dict[Statement, Sign] = {
    Statement.BEGIN: Sign.BEGIN,
    Statement.COMMIT: Sign.COMMIT,
    Statement.ROLLBACK: Sign.ROLLBACK,
    Statement.SAVEPOINT: Sign.SAVEPOINT,
    Statement.XA_START: Sign.XA_START,
    Statement.XA_END: Sign.XA_END,
    Statement.XA_COMMIT: Sign.XA_COMMIT,
    Statement.XA_ROLLBACK: Sign.XA_ROLLBACK,
    Statement.HARMLESS: Sign.STATEMENT,
    Statement.CREATE_TABLE: Sign.STATEMENT,  # harmless too: it succeeds only where no table has the name
    Statement.DDL: Sign.STATEMENT,
    Statement.DML: Sign.STATEMENT,  # of a table that is not copied
}


def begun_with(beginning: Beginning) -> Sign | None:
    """The sign of a GTID event that also is the BEGIN or the XA START; None if it is only a GTID event."""
    if beginning.is_xa_start:
        return Sign.XA_START
    return Sign.BEGIN if beginning.is_begin else None


def state_after(state: State, sign: Sign, event_type: int, at: FilePosition) -> State:
    """The state after a sign. Raises UnsupportedEvent if the grammar does not allow the sign in this state."""
    if (state, sign) not in NEXT:
        raise misplaced(f"an event of type {event_type} ({sign.name}) {state.in_words}", at)
    return NEXT[state, sign]


def not_asked(_: Change) -> str:
    """The `Reach` of a reader that cannot ask the source: each change may reach other tables."""
    return "the source cannot be asked"


@dataclass(frozen=True, slots=True)
class Watched:
    """The tables that a reader watches: those in `schemas` for row changes and DDL, those in `waiting` for DDL alone.

    `reach` says why a change in statement format may change rows of other tables than the table that it names.
    """

    schemas: Mapping[TableId, TableSchema]
    waiting: Mapping[TableId, TableSchema] = field(default_factory=dict)
    reach: Reach = not_asked


def sign_of(
    event: Event,
    watched: Watched,
    at: FilePosition,
    *,
    has_rows: bool,
    begun: FilePosition | None = None,
    is_mariadb: bool = False,
) -> Sign:
    """The sign of a QUERY event, which begins at `at`.

    `has_rows`: whether rows of a copied table precede the event in its transaction. `begun`: the beginning of the
    transaction, if the event is the transaction's first after the GTID. If no `schemas` are watched, the sign of a
    statement that may change rows is PASSED.

    Raises UnsupportedEvent, with the tables that may be changed, for a statement that cannot be replayed. For DDL of
    watched tables the error has each table's alteration; with `begun`, it also has the positions before and after the
    DDL.
    """
    schemas, watched_tables = watched.schemas, {**watched.schemas, **watched.waiting}
    query = read_query(event, is_mariadb=is_mariadb)
    database, text = query.database, query.text
    meaning = classify(query)
    if not schemas and meaning in {*REFUSED, Statement.DML}:
        return Sign.PASSED
    if meaning in REFUSED:
        raise _unclear_error(query, *REFUSED[meaning], schemas, at)
    if meaning is Statement.DML:
        _require_unchanged(query, watched, at)
    if meaning is Statement.DDL and may_change(query, watched_tables):
        excerpt = " ".join(_VALUE.split(text, maxsplit=1)[0].split())[:200]  # without values, which must not be logged
        what = f"DDL that may change a copied table ({excerpt}, in database {database or '-'}{_unread(query)})"
        error = refusal(what, "let it end", at)  # it: the DDL, on the source
        changed = {table: schema for table, schema in watched_tables.items() if may_change(query, {table: schema})}
        error.tables = frozenset(changed)
        error.alterations = _alterations(query, changed, excerpt)
        if begun is not None:
            # with an exclusive lock of a table, the DDL ran beside no transaction that changed the table
            alone = frozenset(table for table, schema in changed.items() if had_exclusive_lock(query, schema))
            error.ddl = Ddl(begun, replace(at, pos=at.pos + event.size), error.alterations, alone)
        raise error
    if meaning is Statement.ROLLBACK and has_rows:
        raise refusal("a ROLLBACK after rows of a copied table", "use only InnoDB in transactions", at)
    return SIGNS[meaning]


def _require_unchanged(query: Query, watched: Watched, at: FilePosition) -> None:
    """Raise UnsupportedEvent if a change in statement format may change rows of `watched.schemas`."""
    schemas = watched.schemas
    copied_databases = {folded(table.database) for table in schemas}
    # MySQL lists the databases of all tables that the statement opens; if none has copied tables, no copied row changes
    if query.databases is not None and copied_databases.isdisjoint(map(folded, query.databases)):
        return
    change = change_of(query)
    if change is None:
        what = "a change in statement format, and it may change several tables"
        raise _unclear_error(query, what, _ROW_FORMAT, schemas, at)
    if why_others := watched.reach(change):  # why it may change other tables than the table that it names
        raise _unclear_error(query, f"a change in statement format, and {why_others}", _ROW_FORMAT, schemas, at)
    target = change.database, change.table
    changed = [table for table in schemas if (folded(table.database), folded(table.name)) == target]
    if changed:
        raise _unclear_error(query, "a change in statement format", _ROW_FORMAT, changed, at)


def _unclear_error(query: Query, what: str, fix: str, tables: Iterable[TableId], at: FilePosition) -> UnsupportedEvent:
    """The error for a statement that may change rows of these tables; `what` says why, `fix` avoids it."""
    # only the first word ('' for an empty text), because the rest may have values, which must not be logged
    first_word = "".join(query.text.split(maxsplit=1)[:1])
    error = refusal(f"{what} ({first_word} … in database {query.database or '-'}{_unread(query)})", fix, at)
    error.tables = frozenset(tables)
    return error


def _unread(query: Query) -> str:
    """The part of a message that names the event's unknown status variable; empty if all variables are known."""
    return "" if query.unknown is None else f", with the unknown status variable {query.unknown}"


def _alterations(query: Query, schemas: Mapping[TableId, TableSchema], excerpt: str) -> dict[TableId, Alteration]:
    """The statement's alteration of each of these tables; `excerpt` is its text for messages.

    Each alteration is a barrier if the statement is unclear, or may change several tables.
    """
    alterations = [alteration_of(query, schema) for schema in schemas.values()]
    if len(alterations) != 1 or alterations[0] is None:
        return {
            table: Alteration(name_changes_of(query, schema), is_barrier=True, statement=excerpt)
            for table, schema in schemas.items()
        }
    [schema] = schemas.values()
    names = {name for change in alterations[0].changes for name in (change.name, change.to)}
    # The text is not kept if it may have a default of a column that is left out or hidden, because that is a value.
    choice = schema.choices.columns
    is_kept = not any(choice.leaves_out(name) or choice.form(name) for name in names)
    text = query.text.encode(errors="backslashreplace").decode() if is_kept else ""
    return dict.fromkeys(schemas, replace(alterations[0], statement=excerpt, text=text))


def refusal(what: str, fix: str, at: FilePosition) -> UnsupportedEvent:
    """The error for an event that cannot be replayed; `fix` is what to do on the source before a new copy."""
    printable = " ".join(what.encode(errors="backslashreplace").decode().split())  # a statement may have any bytes
    return UnsupportedEvent(f"the binlog holds {printable} at {at}; {fix}, then copy the tables again")


def misplaced(what: str, at: FilePosition) -> UnsupportedEvent:
    """The error for an event that the grammar does not allow here; `what` names the event and where it is."""
    return refusal(f"{what}, where it is not allowed", "report it to the lakeingest project", at)


def require_known(beginning: Beginning, at: FilePosition, *, gtids: bool, has_length: bool) -> None:
    """Raise UnsupportedEvent for a GTID event without a GTID if `gtids`, and for one without a length if `has_length`.

    `gtids`: each transaction must have a GTID. `has_length`: each GTID event must have its transaction's length.
    """
    if beginning.gtid is None and gtids:
        raise refusal("a transaction without a GTID, although gtid_mode is ON", "leave gtid_mode as it is", at)
    if not beginning.length and has_length:
        what = "a transaction without its length, as MySQL before 8.0.2 writes it"
        raise refusal(what, "copy from a newer replica", at)


def gap(at: FilePosition, file: FilePosition) -> BinlogGone:
    """The error for a binlog that continues with `file` after `at`.

    Either `file` is not the next file, or a transaction is not complete at `at`.
    """
    return BinlogGone(f"after {at} the source continues with {file.file}: its binlog has a gap; copy the tables again")


def no_end(stop: FilePosition) -> BinlogGone:
    """The error for a binlog in which no transaction ends at the segment's stop."""
    return BinlogGone(
        f"no transaction ends at {stop} in the source's binlog: it is not the one that this position was read from;"
        " copy the tables again"
    )


def not_sent(stop: FilePosition) -> SourceAway:
    """The error for a dump that ends before the segment's stop, although the stop is a written position.

    The server has written a commit group, but does not send the group's end before the group is synced to disk.
    """
    return SourceAway(f"the source does not send {stop} yet; run the same command again")


def damaged(damage: Damaged, at: FilePosition) -> UnsupportedEvent:
    """The error for bytes that the server cannot have written in this form, after the position `at`."""
    return UnsupportedEvent(
        f"the binlog is damaged at {at}: {damage}; run again; if the error stays, restore the source's binlog or copy "
        "the tables again"
    )


def other_history(at: FilePosition, what: str) -> BinlogGone:
    """The error for a binlog whose history is not that of our position `at`; `what` is the difference."""
    return BinlogGone(
        f"the source's binlog is not the one that our position {at} was read from: {what}; it was reset, or the server "
        "was restored from a backup: copy the tables again"
    )


def prove_file(segment: Segment, file: str, began: int) -> None:
    """Raise BinlogGone if `file` is the file of the segment's start, but begun at another time than the history has.

    `began` is the second (since 1970) in which the server began the file. Nothing is raised if the history does not
    have this second.
    """
    history = segment.history
    if file == segment.start.file and history and history.began not in {None, began}:
        raise other_history(segment.start, f"{file} was begun at another time")


def prove_start(segment: Segment, event: LastEvent, end: int) -> None:
    """Prove the segment's history by `event`: the first event that ends at the segment's start or beyond it.

    `end` is the event's end. Raises BinlogGone if the event ends beyond the start, or the history has another event.
    """
    if end != segment.start.pos:
        raise other_history(segment.start, "no event ends there")
    history = segment.history
    if history and history.event not in {None, event}:
        raise other_history(segment.start, "another event ends there")
