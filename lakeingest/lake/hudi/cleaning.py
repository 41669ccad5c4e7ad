"""Removes the data files that no commit in a Hudi table's timeline needs, once queries on older commits have ended.

Hudi archives old commits and leaves their files alone (`hoodie.clean.automatic`): it can keep files only as long as
their commits, and a timeline of thousands of commits makes each write slow. So the files wait (`lake.waiting`).

A removal names the first commit of the timeline. No commit from there on needs the files that this commit or an older
one has replaced. All of these files were replaced before the removal was stored. They are found by their names, so also
if a removal was lost. A new query on an archived commit is refused (`cleaned`); a query that has begun goes on.
"""

from collections.abc import Iterator
from contextlib import suppress

from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.hudi.cleaned import earliest, refuse_before
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.timeline import timeline, writes
from lakeingest.lake.waiting import Waiting

_UNTIL = "until"


def clean(folder: File, waiting: Waiting) -> None:
    """Let the files wait that only archived commits need, and delete those that have waited long enough.

    The next call finishes a call that failed or was interrupted.
    """
    kept = [begun for _, begun, _ in writes(folder)]
    if not kept:
        return
    savepoints = [file.name.partition("_")[0] for file in timeline(folder, "*_*.savepoint")]
    first = min([*kept, *savepoints])
    with suppress(OSError, StateUnreadable):
        # Step 1: note that the files wait from now on. Step 2: refuse new queries on them, before they are deleted
        if not waiting.has(first):
            waiting.add(first, {_UNTIL: first})
        if earliest(folder) < first:  # Hudi archives older cleanings, together with the commits
            refuse_before(folder, first, max(kept))
        # Step 3: delete the files that have waited, and then forget the removals
        due = list(waiting.due())
        if due:  # a table that was restored from an older copy has older commits
            files.delete_all(_replaced(folder, min(first, max(str(removal.of[_UNTIL]) for removal in due))))
        for removal in due:
            removal.drop()


def _replaced(folder: File, instant: str) -> Iterator[File]:
    """The files of each group that are older than the one that a commit of this instant reads.

    Hadoop's checksums of these files are included.
    """
    visible = {file.name.partition("_")[0]: begun_at(file) for file in visible_files(folder, instant)}
    for file in folder.listed("*.parquet"):
        if begun_at(file) < visible.get(file.name.partition("_")[0], ""):
            yield file
            if isinstance(file, Local):
                yield file.with_name(f".{file.name}.crc")


def begun_at(file: File) -> str:
    """The instant of the commit that wrote a data file."""
    return file.stem.rpartition("_")[2]
