"""Staging for a format without branches: a folder of files and of numbered commits, which name their files.

The folder is on a disk or in an object store. A commit is one JSON file, which is complete when it exists. Only one
writer can create it, so commits are serial. It carries the complete progress and names its base.

The rows of a commit are the rows that readers see, or before the first publish the rows of all waves, with the changes
of all later merges applied. A commit that `restarts` removes all earlier rows: from it on, the rows are those of its
own and later waves, with the changes of later merges applied.
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

from lakeingest.core import progress_form
from lakeingest.core.file_names import inside, is_cut
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.refusals import stale

_COMPARED_SECONDS = 3_600  # how long rows to compare are kept
_GONE = "=gone"  # a part of the names of dropped folders; no table's folder has it
_AT_ONCE = 16  # how many files are looked at at the same time


@dataclass(frozen=True, slots=True)
class StagingCommit:
    """One commit: the files of a wave's rows, the files of a merge's changes, or no files."""

    number: int
    version: int
    base: int | None  # the version that it builds on; None for the first of a new table
    progress: Progress
    key: tuple[str, ...]
    rows: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    restarts: bool = False
    added: int | None = None  # by how many rows the changes make the table larger; None: not counted

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back.

        In a commit that restarts, the rows have another key, so that versions which do not know it refuse the commit.
        """
        return {
            "version": self.version,
            "base": self.base,
            "key": self.key,
            "restarts with" if self.restarts else "rows": self.rows,
            "changes": self.changes,
            "added": self.added,
            "progress": progress_form.to_json(self.progress),
        }

    @classmethod
    def from_json(cls, number: int, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for any other document."""
        try:
            progress = progress_form.from_json(doc["progress"])
            restarts = "restarts with" in doc
            lists = doc["restarts with" if restarts else "rows"], doc["changes"]
            rows, changes = (tuple(inside(name) for name in names) for names in lists)
            key, added = tuple(doc["key"]), doc.get("added")  # commits of earlier versions were not counted
            return cls(number, doc["version"], doc["base"], progress, key, rows, changes, restarts, added)
        except (*DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(f"not a commit of staging: {error}") from error


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """The commits of one table, ordered by their numbers, and the files that they name."""

    table: TableId
    path: File

    def commits(self, after: int | None = None) -> list[StagingCommit]:
        """All commits; or the commit of the version `after` and all later ones, none for an unknown version."""
        listed = self.path.listed("*.json")
        commits = [self._parsed(file, text) for file, text in zip(listed, files.read_all(listed), strict=True)]
        if after is None:
            return commits
        start = next((index for index, commit in enumerate(commits) if commit.version == after), len(commits))
        return commits[start:]

    def between(self, published: int | None, version: int) -> list[StagingCommit]:
        """The commits after the published one, up to a version. Raises StaleWriter when no commit has that version."""
        commits = self.commits(published)
        versions = [commit.version for commit in commits]
        if version not in versions:
            raise stale(self.table)
        return commits[0 if published is None else 1 : versions.index(version) + 1]

    def files_at(
        self, version: int, published: int | None, visible: Callable[[], list[File]]
    ) -> tuple[list[File], list[list[File]]]:
        """The files with the rows of a commit, and the files of the merges that change these rows.

        `published` is the commit that readers see; `visible` returns the files of its rows.
        """
        if published == version:
            return visible(), []
        commits = self.between(published, version)
        names, merges = files_of(commits)
        rows = [self.path / name for name in names]
        if published is not None and not is_started_over(commits):
            rows = visible()
        return rows, [[self.path / name for name in merge] for merge in merges]

    def last(self) -> StagingCommit:
        """The last commit; the others are not read. Raises StaleWriter when the folder was dropped."""
        listed = self.path.listed("*.json")
        if not listed:
            raise stale(self.table)
        return self._parsed(listed[-1], listed[-1].read())

    def begin(self, progress: Progress, key: Sequence[str], rows: pa.Table) -> StagingCommit:
        """Make the first commit of a new table: one file with the columns and no rows."""
        (self.path / "data").make_folder()
        return self._create(StagingCommit(1, _new_version(), None, progress, tuple(key), (self.write(rows),)))

    def resume(self, progress: Progress, key: Sequence[str], version: int) -> StagingCommit:
        """Make the first commit of a folder without one. It stands for the version that readers see."""
        (self.path / "data").make_folder()
        return self._create(StagingCommit(1, version, version, progress, tuple(key)))

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
    ) -> StagingCommit:
        """Make a commit on the version `base`. The table may have another primary key from this commit on.

        Raises StaleWriter if `base` is not the last version.
        """
        last = self.last()
        if last.version != base:
            raise stale(self.table)
        number, files = last.number + 1, (tuple(rows), tuple(changes))
        key = tuple(key or last.key)
        return self._create(StagingCommit(number, _new_version(), base, progress, key, *files, restarts, added))

    def cut(self, last: int, version: int) -> None:
        """Remove the commits after a version, the `last` one first.

        Raises StaleWriter where another one is the last.
        """
        commits = self.commits(version)
        if not commits or commits[-1].version != last:
            raise stale(self.table)
        for commit in reversed(commits[1:]):
            (self.path / f"{commit.number:010d}.json").delete()
            self.path.sync()

    def write(self, rows: pa.Table) -> str:
        """Write rows to a new file, durably. It is part of the table when a commit names it."""
        name = self.new_file(".parquet")
        with files.written(self.path / name) as path:
            pq.write_table(rows, path, compression="zstd")
        (self.path / "data").sync()
        return name

    def assert_whole(self, names: Iterable[str]) -> None:
        """Raises StateUnreadable unless these files exist and have their footers, which a truncated file lacks."""

        def look(name: str) -> None:
            try:
                files.parquet_metadata(self.path / name)
            except (OSError, pa.ArrowException) as error:
                raise StateUnreadable(
                    f"{self.table}: {self.path / name} is gone or damaged: {error}; it was not published: remove"
                    f" {self.path} and run again, which merges again what readers do not see yet"
                ) from error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(look, names))

    def new_file(self, suffix: str = "") -> str:
        """A new name of a file in the folder."""
        return f"data/{uuid.uuid4().hex}{suffix}"

    def new_compared(self) -> File:
        """A new folder for rows to compare, which Spark writes.

        It outlives a publish that comes before they are read.
        """
        return self.path / f"compared/{uuid.uuid4().hex}"

    def drop(self) -> None:
        """Remove the commits and the files. Without its first commit the folder counts as dropped."""
        if isinstance(self.path, Local):
            dropped = self.path.with_name(f"{self.path.name}{_GONE}{uuid.uuid4().hex}")
            try:
                self.path.rename(dropped)
            except FileNotFoundError as error:
                raise stale(self.table) from error
            files.delete_all([dropped])
            return
        all_files = self.path.tree()
        if not all_files:
            raise stale(self.table)
        for commit in self.path.listed("*.json"):  # the commits first, so that none names a deleted file
            commit.delete()
        files.delete_all(all_files)

    def is_swept(self, version: int) -> bool:
        """Whether the commit of this version is the first one, as after `sweep`."""
        commits = self.commits()
        return bool(commits) and commits[0].version == version

    def sweep(self, version: int) -> None:
        """Remove the files that only commits up to `version` need. Readers see that commit now, and it stays.

        Rows to compare are removed after an hour.
        """
        if compared := self._groups("compared").values():
            oldest = self.path.now() - _COMPARED_SECONDS
            for group in compared:
                if all(file.changed() < oldest for file in group):
                    files.delete_all(group)
        later = self.commits(version)
        if not later:
            return
        earlier = (file for file in self.path.listed("*.json") if int(file.stem) < later[0].number)
        files.delete_all([*earlier, *(file for group in self._unneeded(later[1:]) for file in group)])

    def remove_leftovers(self, age: timedelta) -> tuple[int, int]:
        """Delete files that are older than `age` and that no commit names.

        Returns how many files, and how many bytes.
        """
        groups = [*self._unneeded(self.commits()), *self._groups("compared").values()]
        groups += [[file] for file in self.path.listed("*.*.*")]
        groups += [[file] for file in self.path.listed("*.new")]
        if isinstance(self.path, Local):
            groups += [list[File](path.self_and_below()) for path in self.path.parent.glob(f"{self.path.name}{_GONE}*")]
        oldest, removed, freed = self.path.now() - age.total_seconds(), 0, 0
        for group in groups:
            if all(file.changed() < oldest for file in group):
                deleted = [
                    file for file in group if not (isinstance(file, Local) and (file.is_symlink() or file.is_dir()))
                ]
                removed, freed = removed + len(deleted), freed + files.total(deleted)
                files.delete_all(group)
        return removed, freed

    def _unneeded(self, commits: Iterable[StagingCommit]) -> Iterator[list[File]]:
        """The files that none of these commits names, in groups.

        The files of a folder, which Spark has written, are one group.
        """
        needed = {name for commit in commits for name in (*commit.rows, *commit.changes)}
        yield from (group for name, group in self._groups("data").items() if f"data/{name}" not in needed)

    def _groups(self, part: str) -> dict[str, list[File]]:
        """The files in one part of the folder, by their names.

        All files of a folder in it are one group, under its name.
        """
        place, groups = self.path / part, dict[str, list[File]]()
        if isinstance(place, Local):
            inside = [] if place.is_symlink() else place.glob("*")
            return {path.name: list[File](path.self_and_below()) for path in inside}
        for file in place.tree():
            groups.setdefault(str(file).removeprefix(f"{place}/").partition("/")[0], []).append(file)
        return groups

    def _create(self, commit: StagingCommit) -> StagingCommit:
        try:
            made = (self.path / f"{commit.number:010d}.json").create(commit.to_json())
        except FileNotFoundError as error:  # the folder was dropped by another run
            raise stale(self.table) from error
        if not made:
            raise stale(self.table)
        return commit

    def _parsed(self, file: File, contents: bytes) -> StagingCommit:
        try:
            return StagingCommit.from_json(int(file.stem), files.parsed(contents))
        except (*DAMAGED, StateUnreadable) as error:
            raise StateUnreadable(
                f"{self.table}: {file} is unreadable: {error}; drop the table to copy it again"
            ) from error


def tables_in(staging: File) -> Iterator[TableId]:
    """The tables that have a folder of staged commits here. A shortened name is looked up in a commit."""
    for name in staging.subfolders():
        if _GONE in name:
            continue
        if not is_cut(name):
            yield TableId.parse(unquote(name))
        elif commits := (staging / name).listed("*.json"):
            yield StagingCommit.from_json(0, files.document(commits[-1])).progress.table


def files_of(commits: Sequence[StagingCommit]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The files of rows of these commits, and the files of changes of each merge, in the order of the commits.

    Commits before one that restarts are left out.
    """
    counted = since_restart(commits)
    rows = [name for commit in counted for name in commit.rows]
    return rows, [commit.changes for commit in counted if commit.changes]


def since_restart(commits: Sequence[StagingCommit]) -> Sequence[StagingCommit]:
    """The commits from the last one that restarts; all of them where none does."""
    return commits[max((number for number, commit in enumerate(commits) if commit.restarts), default=0) :]


def is_started_over(commits: Iterable[StagingCommit]) -> bool:
    """Whether one of these commits removes all earlier rows."""
    return any(commit.restarts for commit in commits)


def _new_version() -> int:
    return uuid.uuid4().int >> 66  # fits a signed 64-bit integer; a sequence would repeat after the loss of a folder
