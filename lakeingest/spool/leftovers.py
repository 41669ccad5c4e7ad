"""Leftovers: files in the spool's folder that no manifest names. Killed tasks leave them."""

from datetime import timedelta
from itertools import chain

from lakeingest.files import file as files
from lakeingest.spool import archive, reread_files
from lakeingest.spool.joined import file_names
from lakeingest.spool.spool import Spool
from lakeingest.state import store


def sweep(spool: Spool, age: timedelta) -> tuple[int, int]:
    """Delete leftovers that are older than `age`. Returns how many files and how many bytes.

    Raises StateUnreadable if a manifest of the archive is damaged, and LeaseLost as `Spool.guard` says.
    """
    spool.assert_owned()
    needed = {name for segment in spool.segments for name in file_names(segment)} | archive.named_files(spool.folder)
    with store.storage_errors(spool.folder):
        data = (path for path in (spool.folder / "data").listed("*") if f"data/{path.name}" not in needed)
        return files.sweep(chain(data, reread_files.leftovers(spool.folder)), age)
