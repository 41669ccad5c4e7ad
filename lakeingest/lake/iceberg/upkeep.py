"""The deletions that `maintain` makes: files that have waited long enough, and files that nothing refers to."""

from collections.abc import Callable
from datetime import timedelta

from pyiceberg.table import Table

from lakeingest.config import Target
from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.discarded import remove_discarded
from lakeingest.lake.iceberg.expiry import sweep, waiting_files
from lakeingest.lake.iceberg.leftovers import remove_leftovers
from lakeingest.lake.iceberg.location import beginning
from lakeingest.lake.waiting import Waiting


def remove_all_leftovers(
    loaded: Table,
    table: TableId,
    settings: Target,
    waiting: Waiting | None,
    age: timedelta,
    in_use: Callable[[str], bool],
) -> tuple[int, int]:
    """Delete files whose removals are due, and files that nothing refers to, of the table and of its discarded copies.

    Returns the number of files that nothing referred to, and their bytes. If it is not known which files wait for
    queries, all files that nothing refers to stay in the table's own folder. Those of a discarded copy are deleted,
    because nobody reads it. `in_use` is as in `remove_leftovers`.
    """
    own_count, own_bytes = 0, 0
    if waiting is not None:
        sweep(loaded, waiting, all_due=True)
        if waiting.check_whole():  # it is known which files wait for queries
            own_count, own_bytes = remove_leftovers(loaded, age, waiting_files(waiting), in_use)
    discarded_count, discarded_bytes = remove_discarded(loaded, table, beginning(settings, table), age)
    return own_count + discarded_count, own_bytes + discarded_bytes
