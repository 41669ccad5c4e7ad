"""Clusterings by others: which of them have changed no row, and how our next commit takes them back.

A clustering is a `replacecommit` of the timeline. It writes the rows of some file groups to new groups, and these
replace the old ones. No bucket has the new groups, so no writer would find a key in them. The files of the old groups
stay until someone cleans them. So our next commit first takes the clustering out of the timeline: readers see our files
again, which have the same rows in their buckets.

A clustering that is planned or in progress is taken back as well. It writes rows as they were when it was
planned: after our next commit, it would take back our changes. Its process cannot complete it afterwards, because Hudi
then asks for the entry `inflight`. A clustering whose process died has the same entries, and is taken back, too.

Source: Hudi's technical specification for version 9 of a table, "Timeline", and its Avro schemas
`HoodieReplaceCommitMetadata` and `HoodieRequestedReplaceMetadata`.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.commit import roll_back
from lakeingest.lake.hudi.file_groups import data_files, first_write, visible_files
from lakeingest.lake.hudi.table_form import has_partitions, remove_indexes
from lakeingest.lake.hudi.timeline import Instant, metadata_of, timeline, writes

CLUSTER = "CLUSTER"  # Hudi's name of the operation
_AT_ONCE = 16  # the number of threads that read footers
_COMPLETED = ".replacecommit"
# the ends of the names of entries, for a clustering that is not completed
_INFLIGHT, _REQUESTED = ((f".clustering.{state}", f".replacecommit.{state}") for state in ("inflight", "requested"))
_PENDING = (*_INFLIGHT, *_REQUESTED)
_judged: dict[str, tuple[object, "Harm | None"]] = {}  # by folder: the commits that were judged, and the result


@dataclass(frozen=True, slots=True)
class GroupFile:
    """The newest file of a file group. `rows` is the number of its rows; None: the file is gone."""

    name: str
    rows: int | None


@dataclass(frozen=True, slots=True)
class Clustering:
    """A completed `replacecommit` of others.

    `operation` is Hudi's name of what was done. `planned` has, for each group, the name of the file that was to be
    read; None: there is no plan. `replaced` are the groups that readers do not read any more. `written` has the file of
    each new group. `is_kept`: a savepoint keeps the clustering.
    """

    instant: str
    operation: str
    planned: Mapping[str, str] | None
    replaced: frozenset[str]
    written: Mapping[str, GroupFile]
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Harm:
    """The clustering that may have changed rows. `reason` follows the words "someone else clustered it"."""

    clustering: Clustering
    reason: str


def harm_of(clusterings: Sequence[Clustering], shown: Mapping[str, GroupFile]) -> Harm | None:
    """The first of the clusterings that may have changed rows; None if each of them surely has changed none.

    The clusterings are in the order in which they were completed. `shown` has the file of each group as of our last
    commit.
    """
    groups = dict(shown)
    for clustering in clusterings:
        reason = _reason(clustering, groups)
        if reason is not None:
            return Harm(clustering, reason)
        groups = {group: file for group, file in groups.items() if group not in clustering.replaced}
        groups |= clustering.written
    return None


def _reason(clustering: Clustering, groups: Mapping[str, GroupFile]) -> str | None:
    """Why the clustering may have changed rows; None if it has changed none. `groups` are those that readers saw."""
    if clustering.operation != CLUSTER:
        return f"the operation is {clustering.operation}, which changes rows"
    if clustering.planned is None:
        return "its plan is gone, so nobody knows which rows it has"
    if clustering.is_kept:
        return "a savepoint keeps it, which has to be deleted first"
    if any("/" in file.name for file in clustering.written.values()):
        return "its files are in other folders"
    if not clustering.replaced <= groups.keys():
        return "files that it replaced are gone, or are not those that readers saw"
    if clustering.written.keys() & groups.keys():
        return "it wrote to file groups that were there before"
    read = [groups[group] for group in sorted(clustering.replaced)]
    if any(clustering.planned.get(group) != groups[group].name for group in clustering.replaced):
        return "it was planned before the last commit of lakeingest, whose changes it took back"
    before = [file.rows for file in read if file.rows is not None]
    if len(before) < len(read):
        return "files that it replaced are gone, so its rows cannot be compared with theirs"
    after = sum(file.rows or 0 for file in clustering.written.values())
    if sum(before) != after:
        return f"it has {after} rows in place of {sum(before)}"
    return None


def clusterings_of(entries: Iterable[tuple[str, str, File]]) -> list[File]:
    """The files of the completed writes that replace file groups, in the order of their completion.

    `entries` are completed writes, as `timeline.writes` returns them.
    """
    return [file for _, _, file in sorted(entries) if file.name.endswith(_COMPLETED)]


def harm_in(folder: File, ours: Instant, found: Sequence[File], *, anew: bool = False) -> Harm | None:
    """As `harm_of`, for the completed clusterings in the files `found`: the harm, or None. `ours` is our last commit.

    The numbers of rows are read from the footers of files. The next call for the same clusterings returns the known
    result, or reads all again if `anew`.
    """
    if not found:
        return None
    facts = ours.time, [file.name for file in found]
    known, harm = _judged.get(str(folder), (None, None))
    if anew or known != facts:
        harm = _look(folder, ours, found)
        _judged[str(folder)] = facts, harm
    return harm


def _look(folder: File, ours: Instant, found: Sequence[File]) -> Harm | None:
    """As `harm_in`, with all entries and footers read now."""
    clusterings = [_clustering(folder, file) for file in found]
    replaced = {group for clustering in clusterings for group in clustering.replaced}
    visible = {file.name.partition("_")[0]: file for file in visible_files(folder, ours.time)}
    read = [group for group in visible if group in replaced]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = dict(zip(read, pool.map(_rows, [visible[group] for group in read]), strict=True))
    # only rows of replaced groups are compared: 0 stands for the number of rows of any other group
    shown = {group: GroupFile(file.name, rows.get(group, 0)) for group, file in visible.items()}
    return harm_of(clusterings, shown)


def _clustering(folder: File, completed: File) -> Clustering:
    """The clustering that a completed entry describes. Raises StateUnreadable if the entry, or its plan, is damaged."""
    instant = completed.name.partition("_")[0]
    with metadata_of(completed) as metadata:
        operation = str(metadata["operationType"])
        stats = [stat for stats in (metadata["partitionToWriteStats"] or {}).values() for stat in stats]
        by_partition: Mapping[str, Sequence[str]] = metadata["partitionToReplaceFileIds"] or {}
        replaced = frozenset(str(group) for groups in by_partition.values() for group in groups)
        written = {str(stat["fileId"]): GroupFile(_name(folder, stat), int(stat["numWrites"])) for stat in stats}
    is_kept = bool(timeline(folder, f"{instant}_*.savepoint"))
    return Clustering(instant, operation, _planned(folder, instant), replaced, written, is_kept=is_kept)


def _name(folder: File, stat: Mapping[str, Any]) -> str:
    """The name of a written file. If the file is in a folder that is no partition of ours, the name has the folder."""
    path, partition = str(stat["path"]), str(stat["partitionPath"] or "")
    is_in_partition = bool(partition) and "/" not in partition and has_partitions(folder)
    return path.removeprefix(f"{partition}/") if is_in_partition else path


def _planned(folder: File, instant: str) -> dict[str, str] | None:
    """For each file group, the name of the file that a clustering reads by its plan; None if there is no plan."""
    entries = folder / ".hoodie" / "timeline"
    for action in ("clustering", "replacecommit"):
        plan = entries / f"{instant}.{action}.requested"
        if not plan.exists() or not plan.size():  # an empty file has no plan
            continue
        with metadata_of(plan) as metadata:
            planned: Any = metadata["clusteringPlan"]
            if planned is not None:
                slices = [one for group in planned["inputGroups"] for one in group["slices"]]
                return {str(one["fileId"]): str(one["dataFilePath"]).rpartition("/")[2] for one in slices}
    return None


def _rows(file: File) -> int | None:
    """The number of rows of a file, by its footer; None if the file is gone."""
    try:
        return int(files.parquet_metadata(file).num_rows)
    except FileNotFoundError:
        return None


def has_clusterings(folder: File) -> bool:
    """Whether the timeline has an entry of a clustering, completed or not."""
    return any(file.name.endswith((_COMPLETED, *_PENDING)) for file in timeline(folder, "*.*"))


def take_back(folder: File) -> list[str]:
    """Take each clustering out of the timeline, whether it is completed or not, and delete its files.

    Returns the instants of these clusterings.

    Callers hold the lock of the table. They know that our files are there, and that no completed clustering has changed
    a row. The next call, or `roll_back`, finishes an interrupted call.
    """
    completed = [file.name.partition("_")[0] for file in clusterings_of(writes(folder))]
    pending = {file.name.partition(".")[0] for file in timeline(folder, "*.*") if file.name.endswith(_PENDING)}
    remove_indexes(folder)  # first: an index would name deleted files
    # the incomplete ones first, then the newest: each may have read files that an older, completed one wrote
    instants = [*sorted(pending - set(completed), reverse=True), *reversed(completed)]
    for instant in instants:
        _make_incomplete(folder, instant)
    roll_back(folder)
    return instants


def _make_incomplete(folder: File, instant: str) -> None:
    """Make of a clustering an incomplete commit, which no reader sees, and which `roll_back` removes."""
    entries = folder / ".hoodie" / "timeline"
    # Step 1: readers see our files again. What is left is a clustering whose process died
    files.delete_all(_completions(folder, instant))
    # Step 2: from here on, the next writer removes the files of the clustering
    (entries / f"{instant}.commit.requested").write(b"")
    # Step 3: nobody can complete or begin the clustering any more. Readers fail on an `inflight` without its plan, so
    # the plan goes last; then each `inflight` again, because someone may have written it just before
    for ending in (*_INFLIGHT, *_REQUESTED, *_INFLIGHT):
        (entries / f"{instant}{ending}").delete()
    # Step 4: someone may have completed the clustering just before step 3
    files.delete_all(_completions(folder, instant))


def _completions(folder: File, instant: str) -> list[File]:
    """The completed entry of a clustering, in a list; an empty list if the clustering is not completed."""
    return [file for file in clusterings_of(writes(folder)) if file.name.startswith(f"{instant}_")]


def planned_clustering(folder: File) -> File | None:
    """The plan of a clustering that is not completed; None if there is none."""
    completed = {file.name.partition("_")[0] for file in clusterings_of(writes(folder))}
    plans = [file for file in timeline(folder, "*.requested") if file.name.endswith(_PENDING)]
    return next((plan for plan in plans if plan.name.partition(".")[0] not in completed), None)


def remove_strays(folder: File) -> None:
    """Delete the data files that processes wrote after their writes had been taken out of the timeline.

    No reader sees these files now. After Hudi has archived the commits of that time, readers would take these files
    for files of an archived commit.
    """
    # a name is `<begun>_<completed>.<kind>`, or `<begun>.<kind>` while the write is incomplete
    known = {file.name.partition(".")[0].partition("_")[0] for file in timeline(folder, "*.*")}
    first = first_write(folder)
    if first is None:
        return
    # files before `first` are of archived commits
    with_instants = ((file, file.stem.rpartition("_")[2]) for file in data_files(folder))
    if strays := [file for file, instant in with_instants if instant >= first and instant not in known]:
        files.delete_all(strays)
