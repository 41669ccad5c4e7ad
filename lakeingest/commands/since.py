"""The moments that users write, and the position after which a reader asks for changes (`--since`), in each form."""

import re
from contextlib import suppress
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
    """The value of `--since`, parsed. Raises UsageError for a text that has none of the five forms.

    The forms are, in the order in which they are tried: a duration, which is counted back from `now`; a GTID set; a
    position of the changelog; an ISO 8601 time, which is in UTC if it has no zone; FILE:POSITION of the binlog.
    """
    if _DURATION.fullmatch(text):
        return parse_time("--since", text, now)
    try:
        if _GTIDS.match(text):
            return GtidSet.parse(text)
        return ReadTo.parse(text)
    except StateUnreadable as error:  # a GTID set or a position, with a mistake in it
        raise UsageError(f"--since: {error}") from error
    except ValueError:
        pass  # no position of the changelog
    with suppress(UsageError):  # no time
        return parse_time("--since", text, now)
    try:
        return FilePosition.parse(text)
    except StateUnreadable:
        raise UsageError(
            f"--since {text}: wanted a position as the lines carry it, a GTID set of MySQL, FILE:POSITION of the"
            " binlog, a time such as 2026-01-31T12:00:00Z, or a duration such as 2h"
        ) from None


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """The value of an option that is an ISO 8601 time, in UTC if it has no zone, or a duration counted back from `now`.

    Raises UsageError for any other text.
    """
    if _DURATION.fullmatch(text):
        return now - TypeAdapter(Duration).validate_python(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "wanted a time such as 2026-01-31T12:00:00Z, or a duration such as 2h"
        raise UsageError(f"{option} {text}: {wanted}") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def parse_gtids(option: str, text: str) -> GtidSet:
    """The value of an option that is a GTID set of MySQL. Raises UsageError for any other text."""
    try:
        return GtidSet.parse(text)
    except StateUnreadable as error:
        raise UsageError(f"{option}: {error}") from error


def position_after(table: TableId, since: Since, log: StoredChangelog, name: str, restarted: Place | None) -> ReadTo:
    """The position in the changelog that stands for `since`: a reader gets the changes after this position.

    `name` is the name of the table's changelog. `restarted` is the place at which the changelog begins if the copy was
    started over, otherwise None.

    Raises ChangelogGone if a change after `since` is not stored any more, or if `since` is of an earlier changelog.
    """
    held, stretch = log.stretch(table)
    match since:
        case ReadTo():
            if since.log not in {"", name}:
                raise ChangelogGone(
                    f"{table}: position {since} is of a changelog that has ended, the spool or the copy was begun anew;"
                    " read the changelog from its beginning, into an empty table"
                )
            read_to = replace(since, log=held.name)  # the name in the spool, which has no suffix for a restart
        case FilePosition():
            read_to = ReadTo(since.place(held.opened.epoch))
        case GtidSet() | datetime():
            place = log.place_of_gtids(held, since) if isinstance(since, GtidSet) else log.place_of_time(held, since)
            if place is None:  # the stored changes begin later
                raise changelog_gone(table, since, stretch, name)
            read_to = ReadTo(place)
    if restarted is not None and restarted > stretch.start:  # the changes before belong to an earlier changelog
        stretch = replace(stretch, start=restarted)
    if stretch.begins_after(read_to):
        raise changelog_gone(table, since, stretch, name)
    return read_to
