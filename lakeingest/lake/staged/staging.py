"""Staging for a format without branches: a folder with data files, and with numbered commits that name these files.

The folder is on a disk or in an object store. A commit is one JSON file. The file is complete when it exists, and of
several writers only one can create the file of a number. So commits have one order. Each commit carries the complete
progress, and names the version that it builds on.

The rows of a commit are computed from three parts:
- the rows that readers see; none before the first publish
- the rows of the waves of later commits
- the changes of the merges of later commits, which are applied in their order

A commit that `restarts` removes all earlier rows. Only this commit and later ones count after it.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.copies import progress_form
from lakeingest.core.copies.progress import Progress
from lakeingest.core.file_names import inside, is_cut
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.dictionaries import repetitive_columns
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.refusals import stale

_COMPARED_SECONDS = 3_600  # how long the rows that Spark wrote for `StagedTarget.readers` are kept
_DROPPED = "=gone"  # a part of the name of each dropped folder; the folder of a table cannot have this part
_AT_ONCE = 16  # the number of threads that read footers
Named = tuple[tuple[str, ...], ...]  # of each partition: its text in `partition_by`, then earlier names of its column


@dataclass(frozen=True, slots=True)
class StagingCommit:
    """One commit: it names the files of a wave's rows, the files of a merge's changes, or no files."""

    number: int
    version: int
    base: int | None  # the version that this commit builds on; None in the first commit of a new table
    progress: Progress
    key: tuple[str, ...]
    rows: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    restarts: bool = False
    added: int | None = None  # the number of rows that the changes insert, less those that they delete; None: unknown
    partitions: Named = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back.

        If the commit restarts, the names of its files have another JSON key. So a version of lakeingest that cannot
        restart finds no names, and refuses the commit.
        """
        return {
            "version": self.version,
            "base": self.base,
            "key": self.key,
            "restarts with" if self.restarts else "rows": self.rows,
            "changes": self.changes,
            "added": self.added,
            "progress": progress_form.to_json(self.progress),
            **({"partitions": self.partitions} if self.partitions else {}),
        }

    @classmethod
    def from_json(cls, number: int, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for any other document."""
        try:
            progress = progress_form.from_json(doc["progress"])
            restarts = "restarts with" in doc
            rows = tuple(map(inside, doc["restarts with" if restarts else "rows"]))
            changes = tuple(map(inside, doc["changes"]))
            key = tuple(doc["key"])
            added = doc.get("added")  # earlier versions of lakeingest did not count
            return cls(
                number,
                doc["version"],
                doc["base"],
                progress,
                key,
                rows=rows,
                changes=changes,
                restarts=restarts,
                added=added,
                partitions=tuple(tuple(map(str, one)) for one in doc.get("partitions", ())),
            )
        except (*DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"not a commit of staging: {error}") from error


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """The staging folder of one table: commits, in the order of their numbers, and the files that they name."""

    table: TableId
    path: File

    def commits(self, since: int | None = None) -> list[StagingCommit]:
        """All commits; with `since`, from this version on, or none without it. Raises StateUnreadable if damaged."""
        listed = self.path.listed("*.json")
        commits = [self._parsed(file, text) for file, text in zip(listed, files.read_all(listed), strict=True)]
        if since is None:
            return commits
        for index, commit in enumerate(commits):
            if commit.version == since:
                return commits[index:]
        return []

    def between(self, published: int | None, version: int) -> list[StagingCommit]:
        """The commits after the version `published`, up to `version`. If `published` is None, from the first commit on.

        Raises StaleWriter if the folder lacks one of these versions, or has `version` before `published`.
        """
        commits = self.commits(published)
        versions = [commit.version for commit in commits]
        if version not in versions:
            raise stale(self.table)
        first = 0 if published is None else 1  # `commits` begins with the commit of the version `published`
        return commits[first : versions.index(version) + 1]

    def files_at(
        self, version: int, published: int | None, visible: Callable[[], list[File]]
    ) -> tuple[list[File], list[list[File]]]:
        """The files with the rows of the commit `version`, and the files of each merge that changes these rows.

        `published` is the version that readers see, None before the first publish. `visible` returns the files with the
        rows of that version. Raises StaleWriter as `between`.
        """
        if published == version:
            return visible(), []
        commits = self.between(published, version)
        names, merges = files_of(commits)
        are_all_staged = published is None or is_started_over(commits)
        rows = [self.path / name for name in names] if are_all_staged else visible()
        return rows, [[self.path / name for name in merge] for merge in merges]

    def last(self) -> StagingCommit:
        """The last commit. The other commits are not read. Raises StaleWriter if the folder was dropped."""
        listed = self.path.listed("*.json")
        if not listed:
            raise stale(self.table)
        return self._parsed(listed[-1], listed[-1].read())

    def begin(self, progress: Progress, key: Sequence[str], rows: pa.Table, partitions: Named = ()) -> StagingCommit:
        """Make the first commit of a new table; `rows` has its columns, and no rows. Raises StaleWriter as `append`."""
        (self.path / "data").make_folder()
        version, empty_file = _new_version(), self.write(rows)
        # None: the commit has no base
        commit = StagingCommit(1, version, None, progress, tuple(key), rows=(empty_file,), partitions=partitions)
        return self._create(commit)

    def begin_at(self, version: int, progress: Progress, key: Sequence[str], partitions: Named = ()) -> StagingCommit:
        """As `begin`, for a table that readers see: the rows are in the published `version`, so no file is named."""
        (self.path / "data").make_folder()
        # `version` twice: the commit has the published version, and the folder builds on this version
        return self._create(StagingCommit(1, version, version, progress, tuple(key), partitions=partitions))

    def append(
        self,
        base: int,
        progress: Progress,
        rows: Sequence[str] = (),
        changes: Sequence[str] = (),
        *,
        restarts: bool = False,
        added: int | None = None,
        key: Sequence[str] | None = None,
        partitions: Named | None = None,
    ) -> StagingCommit:
        """Make a commit on the version `base`. With None as `key` or `partitions`, that of the last commit stays.

        Raises StaleWriter if `base` is not the last version, or if another run makes a commit first.
        """
        last = self.last()
        if last.version != base:
            raise stale(self.table)
        commit = StagingCommit(
            number=last.number + 1,
            version=_new_version(),
            base=base,
            progress=progress,
            key=tuple(key or last.key),
            rows=tuple(rows),
            changes=tuple(changes),
            restarts=restarts,
            added=added,
            partitions=last.partitions if partitions is None else partitions,
        )
        return self._create(commit)

    def remove_commits_after(self, version: int, last: int) -> None:
        """Remove the commits after `version`, the newest first. `last` is the version of the last commit.

        Raises StaleWriter if the last commit has another version than `last`, or if no commit has `version`.
        """
        commits = self.commits(version)
        if not commits or commits[-1].version != last:
            raise stale(self.table)
        for commit in reversed(commits[1:]):  # the first one is the commit `version`
            (self.path / f"{commit.number:010d}.json").delete()
            self.path.sync()  # each time, so that a crash never leaves a commit after a removed one

    def write(self, rows: pa.Table) -> str:
        """Write rows to a new file, durably. Returns its name. The table has the rows once a commit names the file."""
        name = self.new_file()
        with files.written(self.path / name) as path:
            pq.write_table(rows, path, compression="zstd", use_dictionary=repetitive_columns(rows))
        (self.path / "data").sync()
        return name

    def assert_whole(self, names: Iterable[str]) -> None:
        """Raises StateUnreadable unless all these files exist and have a footer. A truncated file has no footer."""

        def assert_has_footer(name: str) -> None:
            try:
                files.parquet_metadata(self.path / name)
            except (OSError, pa.ArrowException) as error:
                raise StateUnreadable(
                    f"{self.table}: {self.path / name} is gone or damaged: {error}; it was not published: remove"
                    f" {self.path} and run again, which merges again what readers do not see yet"
                ) from error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(assert_has_footer, names))  # a list, because only reading the results raises an error

    def new_file(self) -> str:
        """A new, unique name for a Parquet file in the folder."""
        return f"data/{uuid.uuid4().hex}.parquet"

    def new_compared_folder(self) -> File:
        """A new folder, in which Spark writes rows for `StagedTarget.readers`.

        `sweep` keeps the rows for an hour. So they are still there if a publish comes before they are read.
        """
        return self.path / f"compared/{uuid.uuid4().hex}"

    def drop(self) -> None:
        """Delete all commits and files. Raises StaleWriter if the folder does not exist.

        On a disk, the folder is renamed first, so that no run finds only a part of it. In an object store, the commits
        are deleted first, so that no commit names a deleted file.
        """
        if isinstance(self.path, Local):
            dropped = self.path.with_name(f"{self.path.name}{_DROPPED}{uuid.uuid4().hex}")
            try:
                self.path.rename(dropped)
            except FileNotFoundError as error:
                raise stale(self.table) from error
            files.delete_all([dropped])
            return
        all_files = self.path.tree()
        if not all_files:
            raise stale(self.table)
        for commit in self.path.listed("*.json"):
            commit.delete()
        files.delete_all(all_files)

    def is_swept(self, version: int) -> bool:
        """Whether the first commit of the folder has this version, as after `sweep`."""
        commits = self.commits()
        return bool(commits) and commits[0].version == version

    def sweep(self, version: int) -> None:
        """Delete the commits before the commit `version`, and the files that no commit after it names.

        Readers see `version` now. Its commit stays, without its files; if it is missing, none is deleted. Rows that
        Spark wrote for `StagedTarget.readers` are deleted after an hour.
        """
        # Step 1: delete old rows of `StagedTarget.readers`
        if compared := self._files_by_name("compared").values():
            limit = self.path.now() - _COMPARED_SECONDS
            for group in compared:
                if all(file.changed() < limit for file in group):
                    files.delete_all(group)
        # Step 2: delete commits and files that the published table has made superfluous
        remaining = self.commits(version)
        if not remaining:
            return
        earlier = [file for file in self.path.listed("*.json") if int(file.stem) < remaining[0].number]
        # the files of the commit `version` are not needed: their rows are in the published table now
        unneeded = [file for group in self._unneeded_files(remaining[1:]) for file in group]
        files.delete_all([*earlier, *unneeded])

    def remove_leftovers(self, age: timedelta) -> tuple[int, int]:
        """Delete files that are older than `age` and that no commit names.

        Returns the number of deleted files, and their bytes.
        """
        # groups of files that are deleted together, when all of them are old enough
        groups = list(self._unneeded_files(self.commits()))
        groups += self._files_by_name("compared").values()  # rows that Spark wrote for `StagedTarget.readers`
        # temporary files of commits, left by killed runs
        groups += [[file] for file in self.path.listed("*.*.*")]
        groups += [[file] for file in self.path.listed("*.new")]
        if isinstance(self.path, Local):  # folders whose drop was interrupted
            dropped = self.path.parent.glob(f"{self.path.name}{_DROPPED}*")
            groups += [list[File](path.self_and_below()) for path in dropped]
        limit = self.path.now() - age.total_seconds()
        removed, freed = 0, 0
        for group in groups:
            if all(file.changed() < limit for file in group):
                counted = [file for file in group if not _is_link_or_folder(file)]  # links and folders hold no data
                removed += len(counted)
                freed += files.total(counted)
                files.delete_all(group)
        return removed, freed

    def _unneeded_files(self, commits: Iterable[StagingCommit]) -> Iterator[list[File]]:
        """The files in `data` that none of these commits names, in the groups of `_files_by_name`."""
        needed = {name for commit in commits for name in (*commit.rows, *commit.changes)}
        yield from (group for name, group in self._files_by_name("data").items() if f"data/{name}" not in needed)

    def _files_by_name(self, subfolder: str) -> dict[str, list[File]]:
        """The entries of a subfolder by their names. An entry is a file, or a folder with everything below it."""
        parent = self.path / subfolder
        if isinstance(parent, Local):
            entries = [] if parent.is_symlink() else parent.glob("*")
            return {path.name: list[File](path.self_and_below()) for path in entries}
        groups: dict[str, list[File]] = {}
        for file in parent.tree():  # in a store, a folder is only a part of its files' names
            entry_name = str(file).removeprefix(f"{parent}/").partition("/")[0]
            groups.setdefault(entry_name, []).append(file)
        return groups

    def _create(self, commit: StagingCommit) -> StagingCommit:
        """Write the file of the commit.

        Raises StaleWriter if another run has written a commit of this number, or has dropped the folder.
        """
        try:
            is_created = (self.path / f"{commit.number:010d}.json").create(commit.to_json())
        except FileNotFoundError as error:
            raise stale(self.table) from error
        if not is_created:
            raise stale(self.table)
        return commit

    def _parsed(self, file: File, contents: bytes) -> StagingCommit:
        """The commit in a file with these contents. Raises StateUnreadable if they are damaged."""
        try:
            return StagingCommit.from_json(int(file.stem), files.parsed(contents))
        except (*DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(
                f"{self.table}: {file} is unreadable: {error}; drop the table to copy it again"
            ) from error


def tables_in(staging: File) -> Iterator[TableId]:
    """The tables that have a staging folder in the folder `staging`."""
    for name in staging.subfolders():
        if _DROPPED in name:
            continue
        if not is_cut(name):
            yield TableId.parse(unquote(name))
        elif commits := (staging / name).listed("*.json"):  # a shortened name does not tell the table, a commit does
            # 0 stands for the number of the commit, which is not needed here
            yield StagingCommit.from_json(0, files.document(commits[-1])).progress.table


def files_of(commits: Sequence[StagingCommit]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The files of rows of these commits, and the files of changes of each merge, in the order of the commits.

    Commits before the last commit that restarts are left out.
    """
    remaining = since_restart(commits)
    rows = [name for commit in remaining for name in commit.rows]
    merges = [commit.changes for commit in remaining if commit.changes]
    return rows, merges


def since_restart(commits: Sequence[StagingCommit]) -> Sequence[StagingCommit]:
    """The last commit that restarts, and all later commits. If no commit restarts, all commits."""
    first = max((index for index, commit in enumerate(commits) if commit.restarts), default=0)
    return commits[first:]


def is_started_over(commits: Iterable[StagingCommit]) -> bool:
    """Whether one of these commits restarts, so that it removes all earlier rows."""
    return any(commit.restarts for commit in commits)


def _is_link_or_folder(file: File) -> bool:
    return isinstance(file, Local) and (file.is_symlink() or file.is_dir())


def _new_version() -> int:
    """A random number that fits a signed BIGINT. Numbers of a sequence would repeat after the loss of the folder."""
    return uuid.uuid4().int >> 66
