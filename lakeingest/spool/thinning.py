"""Thinning: a table that stands still keeps the spool from there on, but not the rows of other tables."""

from collections.abc import Mapping
from datetime import timedelta

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.files import file as files
from lakeingest.spool.readers import needed_by_readers
from lakeingest.spool.spool import Spool
from lakeingest.state import store


def thin(spool: Spool, needed: Mapping[TableId, Place], keep: timedelta) -> None:
    """Drop the files of tables from segments that only others need. The last segment stays whole.

    `needed` says from where on each table needs the spool. Readers of the changelog can read a file for the time
    `keep`, counted from when it was spooled; nothing is dropped while a reader is at work.
    """
    if needed_by_readers(spool.folder) is not None:
        return
    old = files.now(spool.folder) - keep.total_seconds()
    for number, _, segment, after in list(spool.parts())[:-1]:
        over = {
            table: spool.folder / file[0]
            for table, file in segment.tables.items()
            if file and table in needed and needed[table] >= after.place
        }
        with store.storage_errors(spool.folder):
            if any(files.changed(path) > old for path in over.values()):
                return  # the later ones are not older
        if over:
            spool.drop(number, over)
