"""Finds the first statement in the unread binlog that would stop copied tables. Rows are not decoded."""

from collections.abc import Mapping

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, file_start
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.binlog_reader import can_begin_at, dump_events
from lakeingest.mysql.connection import beside, free_server_id, written_position
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.statement_reach import StatementReach
from lakeingest.mysql.wire.events import Damaged, Event, Type, has_checksums, read_rotate
from lakeingest.mysql.wire.grammar import Watched, sign_of

_BYTES = 16 << 20  # how many bytes are searched: enough, because services write such statements every few minutes


def statement_ahead(source: Source, start: FilePosition | None, schemas: Mapping[TableId, TableSchema]) -> str | None:
    """The message of the error with which a statement would stop tables; None if there is no such statement.

    Such a statement cannot be replayed, and is not DDL. The binlog is searched from `start` on (None: from the
    start of the current file) for `_BYTES` at most. Compressed transactions are not searched. If the binlog is damaged,
    the result says so.
    """
    if not schemas:  # no table could be stopped
        return None
    try:
        return _first_refusal(source, start, schemas)
    except Damaged as damage:
        return f"the binlog is damaged: {damage}"


def _first_refusal(source: Source, start: FilePosition | None, schemas: Mapping[TableId, TableSchema]) -> str | None:
    """As `statement_ahead`, for `schemas` that are not empty. Raises Damaged for a damaged binlog."""
    with beside(source) as connection:
        begin = start or file_start(written_position(connection).file)
        at = begin if can_begin_at(begin) else begin.start_of_file  # a dump cannot begin beyond 4 GiB
        watched = Watched(schemas, reach=StatementReach(source))
        is_mariadb = dialect(connection) is MARIADB
        bytes_left = _BYTES
        checksums = True
        for raw in dump_events(connection, at, free_server_id(connection, source)):
            event = Event.parse(raw, checksums=checksums)
            if event.type == Type.FORMAT_DESCRIPTION:
                checksums = has_checksums(raw)
            elif event.type == Type.ROTATE and event.is_made_up:  # the server sends one before each file
                at = FilePosition(*read_rotate(event))
            elif event.type == Type.QUERY:
                try:
                    sign_of(event, watched, at, has_rows=False, is_mariadb=is_mariadb)  # False: rows are not followed
                except UnsupportedEvent as error:
                    if error.alterations is None:  # it is no DDL; a run can follow DDL, or halt at it
                        return str(error)
            if not event.is_made_up:
                at = FilePosition(at.file, max(at.pos, event.end))  # the four bytes of `end` start again after 4 GiB
            bytes_left -= event.size
            if bytes_left < 0:
                break
    return None
