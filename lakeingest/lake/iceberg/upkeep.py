"""The deletions that `maintain` makes: files that have waited long enough, and files that nothing refers to."""

from collections.abc import Callable
from datetime import timedelta

from pyiceberg.table import Table

from lakeingest.config import Target
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.commits.discarded import remove_discarded
from lakeingest.lake.iceberg.tables.expiry import sweep, waiting_files
from lakeingest.lake.iceberg.tables.leftovers import remove_leftovers
from lakeingest.lake.iceberg.tables.location import beginning
from lakeingest.lake.waiting import Waiting


def remove_all_leftovers(
    loaded: Table,
    table: TableId,
    settings: Target,
    waiting: Waiting | None,
    age: timedelta,
    in_use: Callable[[str], bool],
) -> tuple[int, int]:
    """Delete the files of the table and of its discarded copies that nobody needs any more.

    1. The table's files whose removals are due.
    2. The table's files that nothing refers to, but only if it is known which of them queries may still read.
    3. The files of discarded copies, which nobody reads.

    Returns the number of deleted files of 2 and 3, and their bytes. `age` and `in_use` are as in `remove_leftovers`.
    """
    own_count, own_bytes = 0, 0
    if waiting is not None:
        sweep(loaded, waiting, all_due=True)
        if waiting.check_whole():  # it is known which files wait for queries
            own_count, own_bytes = remove_leftovers(loaded, age, waiting_files(waiting), in_use)
    discarded_count, discarded_bytes = remove_discarded(loaded, table, beginning(settings, table), age)
    return own_count + discarded_count, own_bytes + discarded_bytes
