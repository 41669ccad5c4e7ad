"""Our last commit on a Hudi table, whose rows readers see. Writes of others that may have changed a row are refused."""

from collections.abc import Sequence
from dataclasses import replace

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite
from lakeingest.files.file import File
from lakeingest.lake.hudi.clusterings import CLUSTER, clusterings_of, harm_in
from lakeingest.lake.hudi.timeline import Instant, completed_instants, writes
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import foreign_write, not_ours


def our_last_commit(table: TableId, folder: File, *, building: bool = False) -> Instant | None:
    """Our last commit, whose rows readers of the table in the folder see.

    None: the folder has no commits, and is the folder of a first publish (`building`).

    Raises NotOurTable if the folder is no copy of the table. Raises ForeignWrite if someone else wrote to the table
    after our last commit, clustered it so that a row may have changed, or removed all commits.
    """
    entries = writes(folder)
    newest_foreign: Instant | None = None
    newest_commit: Instant | None = None  # the newest one of others that is no clustering
    for instant in completed_instants(entries):  # the newest first
        if OWNER not in instant.properties:
            newest_foreign = newest_foreign or instant  # the first one found is the newest
            newest_commit = newest_commit or (None if instant.replaces_groups else instant)
        elif instant.properties[OWNER] != str(table):  # a copy of another table
            raise not_ours(str(folder), table)
        elif newest_commit is not None:
            raise foreign_write(table, f"commit {newest_commit.time}", f"commit {instant.time}")
        else:
            return assert_harmless(table, folder, instant, clusterings_of(entries))
    # no commit is ours
    if newest_foreign is not None:
        raise not_ours(str(folder), table)
    if not building:  # after TRUNCATE or CREATE TABLE
        raise ForeignWrite(
            f"{table}: {folder} has no commit: someone else emptied or downgraded the table, or created one in its"
            " place; remove it to copy the table again"
        )
    return None


def assert_harmless(
    table: TableId, folder: File, ours: Instant, clusterings: Sequence[File], *, anew: bool = False
) -> Instant:
    """`ours`, our last commit, with the time as of which readers read the table.

    Raises ForeignWrite if a clustering may have changed rows. `clusterings` are those of the timeline. A clustering
    before our last commit counts, too: someone may have completed it while we wrote our commit. `anew`: look again at
    files that were looked at before.
    """
    harm = harm_in(folder, ours, clusterings, anew=anew)
    if harm is not None and harm.clustering.operation != CLUSTER:  # an operation that may change rows
        raise foreign_write(table, f"commit {harm.clustering.instant}", f"commit {ours.time}")
    if harm is not None:
        raise ForeignWrite(
            f"{table}: someone else clustered it by commit {harm.clustering.instant}, and {harm.reason};"
            f" `lakeingest rollback {table}` lets readers see commit {ours.time}, the last one of lakeingest, again"
        )
    times = [ours.time, *(file.name.partition("_")[0] for file in clusterings)]
    return replace(ours, read_at=max(times))
