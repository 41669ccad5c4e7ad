"""The position in the changelog after which a reader asks for changes."""

from dataclasses import replace
from datetime import datetime

from lakeingest.core.binlog.position import FilePosition, GtidSet, Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChangelogGone
from lakeingest.spool.changelog import StoredChangelog, changelog_gone

Since = ReadTo | GtidSet | FilePosition | datetime


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
