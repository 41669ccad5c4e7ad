"""Deletes the data files that only archived commits of a Hudi table need, when queries on these commits have ended.

Hudi archives old commits, and does not delete their files (`hoodie.clean.automatic`). Hudi could keep files only as
long as their commits, and a timeline of thousands of commits makes each write slow. So lakeingest lets the removal of
the files wait (`lake.waiting`).

When a removal is stored, it names the first commit of the timeline. The files to delete are those that this commit or
an older one has replaced: no commit of the timeline reads them. They are found by their names, even if a removal was
lost. Hudi refuses new queries on an archived commit (`cleaned`). A query that began earlier can read the files while
the removal waits.
"""

from collections.abc import Iterator
from contextlib import suppress

from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.hudi.cleaned import earliest_readable, refuse_queries_before
from lakeingest.lake.hudi.file_groups import data_files, visible_files
from lakeingest.lake.hudi.timeline import timeline, writes
from lakeingest.lake.waiting import Waiting

_UNTIL = "until"  # the key of a removal: files that this commit or an older one has replaced can be deleted


def clean(folder: File, waiting: Waiting) -> None:
    """Store a removal of the files that only archived commits need, and delete the files whose removal is due.

    Once the removal is stored, Hudi refuses new queries that would read these files. A failure to store or to
    delete raises nothing: the next call finishes a call that failed or was interrupted.
    """
    commits = [begun for _, begun, _ in writes(folder)]
    if not commits:
        return
    savepoints = [file.name.partition("_")[0] for file in timeline(folder, "*_*.savepoint")]
    first = min([*commits, *savepoints])  # the first commit whose files must stay
    with suppress(OSError, StateUnreadable):  # the next call tries again
        # Step 1: store the removal: the files wait from now on
        if not waiting.has(first):
            waiting.add(first, {_UNTIL: first})
        # Step 2: refuse new queries that would read the files
        if earliest_readable(folder) < first:  # no cleaning that refuses these queries is in the timeline
            refuse_queries_before(folder, first, max(commits))
        # Step 3: delete the files of the removals that are due, and then the removals
        due = list(waiting.due())
        if due:
            latest_due = max(str(removal.of[_UNTIL]) for removal in due)
            # `first` is earlier only if someone restored an older copy of the folder: the commits from `first` on are
            # in its timeline, and need their files
            files.delete_all(_replaced_files(folder, min(first, latest_due)))
        for removal in due:
            removal.drop()


def _replaced_files(folder: File, instant: str) -> Iterator[File]:
    """The files that the commit `instant` or an older commit has replaced, and Hadoop's checksums of these files."""
    # by file group: the instant of the file that readers of the commit `instant` read
    visible_instants = {file.name.partition("_")[0]: instant_of(file) for file in visible_files(folder, instant)}
    for file in data_files(folder):
        # '' is before each instant: in a group without a visible file, no file was replaced
        visible_instant = visible_instants.get(file.name.partition("_")[0], "")
        if instant_of(file) < visible_instant:
            yield file
            if isinstance(file, Local):
                yield file.with_name(f".{file.name}.crc")


def instant_of(file: File) -> str:
    """The instant of the commit that wrote a data file."""
    return file.stem.rpartition("_")[2]
