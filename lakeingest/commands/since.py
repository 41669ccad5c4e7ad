"""`--since`: the start of the changelog that a reader asks for, in each form that it may have."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import TypeAdapter

from lakeingest.config.duration import Duration
from lakeingest.core.position import FilePosition, GtidSet, Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import ChangelogGone, StateUnreadable, UsageError
from lakeingest.spool.changelog import StoredChangelog, changelog_gone

Since = ReadTo | GtidSet | FilePosition | datetime

_DURATION = re.compile(r"\d+[smhdw]", re.ASCII)
_GTIDS = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")


def parse_since(text: str, now: datetime) -> Since:
    """A position of the changelog, a GTID set, FILE:POSITION, an ISO 8601 time (UTC without a zone), or a duration.

    A duration is counted back from `now`. Raises UsageError for any other text.
    """
    if _DURATION.fullmatch(text):
        return now - TypeAdapter(Duration).validate_python(text)
    try:
        if _GTIDS.match(text):
            return GtidSet.parse(text)
        return ReadTo.parse(text)
    except StateUnreadable as error:
        raise UsageError(f"--since: {error}") from error
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC)
    except ValueError:
        pass
    try:
        return FilePosition.parse(text)
    except StateUnreadable:
        raise UsageError(
            f"--since {text}: wanted a position as the lines carry it, a GTID set of MySQL, FILE:POSITION of the"
            " binlog, a time such as 2026-01-31T12:00:00Z, or a duration such as 2h"
        ) from None


def resolved(table: TableId, since: Since, log: StoredChangelog, name: str, restarted: Place | None) -> ReadTo:
    """The position of a reader that asks for the changes after `since`.

    `name` is the name of the table's changelog. If the copy was started over, the changelog begins at `restarted`.

    Raises ChangelogGone if not all these changes are held.
    """
    held, stretch = log.stretch(table)
    match since:
        case ReadTo():
            if since.log not in {"", name}:
                raise ChangelogGone(
                    f"{table}: position {since} is of a changelog that has ended, the spool or the copy was begun anew;"
                    " read the changelog from its beginning, into an empty table"
                )
            read_to = replace(since, log=held.name)
        case FilePosition():
            read_to = ReadTo(since.place(held.opened.epoch))
        case GtidSet() | datetime():
            place = log.place_of_gtids(held, since) if isinstance(since, GtidSet) else log.place_of_time(held, since)
            if place is None:
                raise changelog_gone(table, since, stretch, name)
            read_to = ReadTo(place)
    if restarted is not None and restarted > stretch.start:
        stretch = replace(stretch, start=restarted)
    if stretch.begins_after(read_to):
        raise changelog_gone(table, since, stretch, name)
    return read_to
