"""The folder of a Hudi table. It has the table's name; until the first publish, the table is in a folder beside it.

On a disk, the first publish ends with a rename of that folder. An object store has no rename: the files are copied, and
`hoodie.properties`, without which a folder is no table, is copied last. So readers find the whole table, or no table.
"""

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeingest.config.place import Place
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.disk import sync_changed, sync_tree
from lakeingest.errors import LakeIngestError, NotOurTable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.hudi.clusterings import clusterings_of, has_clusterings, take_back
from lakeingest.lake.hudi.file_groups import assert_whole, relative_name, visible_files
from lakeingest.lake.hudi.last_commit import assert_harmless, our_last_commit
from lakeingest.lake.hudi.options import RECORD_KEY_COLUMNS
from lakeingest.lake.hudi.table_form import PARTITION_METADATA, PROPERTIES, declare_record_key
from lakeingest.lake.hudi.timeline import Instant, writes
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.ownership import PIPELINE, Ownership
from lakeingest.lake.refusals import not_ours, stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK_SECONDS = 2.0  # the modification time of a file can be earlier than the clock by this much
_AT_ONCE = 16  # the number of files that are copied at the same time


def location(file: File) -> str:
    """The name of a file or folder for Spark."""
    return Place.of(str(file)).hadoop


def is_table(folder: File) -> bool:
    """Whether there is a Hudi table in the folder."""
    return (folder / ".hoodie").is_dir() if isinstance(folder, Local) else (folder / PROPERTIES).exists()


@dataclass(frozen=True, slots=True)
class TableFolder(ABC):
    """The folder of a table: `building` until the first publish, then `final`, which has the table's name.

    With `ownership`, copies of other pipelines are refused.
    """

    table: TableId
    final: File
    ownership: Ownership | None = None

    @staticmethod
    def of(table: TableId, final: File, ownership: Ownership | None = None) -> "TableFolder":
        """The folder on a disk or in an object store."""
        kind = LocalTableFolder if isinstance(final, Local) else StoredTableFolder
        return kind(table, final, ownership)

    @property
    def building(self) -> File:
        """The folder that the table is in until the first publish."""
        return self.final.parent / (self.final.name + BUILDING)

    @property
    def current(self) -> File:
        """The folder that the table is in now: `final` or `building`. `building` if there is no table yet."""
        return self.final if self._has_final_name() else self.building

    def published(self) -> Instant | None:
        """The commit that readers see or, after an interrupted first publish, will see.

        None: nothing is published.

        Raises:
            NotOurTable: the folder is no copy of the table.
            ForeignWrite: someone else wrote to the table after our last commit.
            NotOurCopy: the copy, or the claim file of a first copy, belongs to another pipeline.

        """
        instant = self._last_commit()
        properties = self.claimed() if instant is None else instant.properties
        if self.ownership is not None and properties is not None:
            self.ownership.assert_ours(self.table, properties)
        return instant

    def take_back_clusterings(self) -> Sequence[str]:
        """Let readers see our files again if others cluster or clustered the table. The caller holds the lock.

        Returns the instants of the clusterings that were taken back.

        Raises ForeignWrite if a clustering may have changed rows, and StateUnreadable if a file of ours is gone.
        """
        if not has_clusterings(self.current) or (published := self.published()) is None:
            return ()
        found = clusterings_of(writes(self.current))
        assert_harmless(self.table, self.current, published, found, anew=True)
        assert_whole(self.table, self.current)
        return take_back(self.current)

    def claimed(self) -> Mapping[str, str] | None:
        """The content of the claim file: the owner property of the pipeline that makes the first copy.

        None: there is no claim file. A damaged claim file has the owner '', which is no pipeline.
        """
        try:
            return {PIPELINE: str(files.document(self._claim_file)[PIPELINE])}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return {PIPELINE: ""}

    def claim(self) -> None:
        """Write the claim file: this pipeline begins the first copy. Only one pipeline can create the file.

        Without `ownership`, no file is written. Raises NotOurCopy if another pipeline has created the file.
        """
        if self.ownership is None:
            return
        self._claim_file.parent.make_folder()
        our_claim = self.ownership.marks({})  # {}: whatever the owner is, the result has our property
        # repeated if the file is deleted between `create` and `claimed`: only the creation of the file proves that no
        # other pipeline begins the first copy
        while not self._claim_file.create(our_claim):
            present_claim = self.claimed()
            if present_claim is not None:
                self.ownership.assert_ours(self.table, present_claim)
                self._claim_file.put_document(our_claim)  # because this pipeline may have another id or folder now
                return

    def claim_for(self, owner: Owner) -> None:
        """Make `owner` the owner in the claim file, whichever pipeline has created the file."""
        self._claim_file.parent.make_folder()
        self._claim_file.put_document({PIPELINE: owner.to_text()})

    @property
    def _claim_file(self) -> File:
        """The file, beside the folder, that names the pipeline of the first copy."""
        return self.final.parent / f"{self.final.name}.lakeingest.json"

    def _last_commit(self) -> Instant | None:
        """Our last commit in `final`; if `final` is no table, our last commit in `building`.

        None: `final` is no table, and `building` has no commit of ours. Raises NotOurTable if something else has the
        folder `final`.
        """
        if is_table(self.final):
            return our_last_commit(self.table, self.final)
        published = None
        if is_table(self.building):
            published = our_last_commit(self.table, self.building, building=True)
        if self._is_final_taken(published):
            raise not_ours(str(self.final), self.table)
        return published

    def shows(self, version: int) -> bool:
        """Whether readers see the commit of staging with this version."""
        published = self.published()
        return published is not None and published.version == version

    @abstractmethod
    def give_name(self) -> None:
        """Rename or copy the table from `building` to `final`. Raises StaleWriter if another run has removed files."""

    def declare_record_key_of(self, published: Instant | None) -> None:
        """Write the record key of the commit's rows into the table's properties, if the commit names the record key.

        Readers do not need the property. If a run ends between the commit and this step, the next run repeats the step.
        """
        if published is not None and RECORD_KEY_COLUMNS in published.properties:
            declare_record_key(self.current, published.names(RECORD_KEY_COLUMNS))

    def finish(self, published: Instant) -> None:
        """Complete the publish of this commit, if it was interrupted after the commit. Raises as `give_name`."""
        if self._has_final_name():
            self._unmake_building()  # the last step of `give_name`, which may be missing
        else:
            self.give_name()
        self.declare_record_key_of(published)

    @abstractmethod
    def make_durable(self, since: float) -> None:
        """Make the files durable that were written after the time `since`, in seconds since 1970."""

    def clear_building(self, spark: "SparkSession | None" = None) -> None:
        """Delete the folder `building`, unless it has the copy of another table, or a write of someone else.

        Callers know that readers need no commit of this table in `building`. In an object store, `spark` deletes the
        objects that stand for folders, too.
        """
        if is_table(self.building):
            try:
                our_last_commit(self.table, self.building, building=True)
            except LakeIngestError:  # a table of the source has the name of this folder, or someone else wrote to it
                return
        self._delete_building(spark)

    @abstractmethod
    def _delete_building(self, spark: "SparkSession | None") -> None:
        """Delete the folder `building`."""

    @abstractmethod
    def _has_final_name(self) -> bool:
        """Whether the table is in its final folder."""

    @abstractmethod
    def _unmake_building(self) -> None:
        """After the table got its name: let the folder `building` be no table."""

    @abstractmethod
    def _is_final_taken(self, published: Instant | None) -> bool:
        """Whether something else has the folder `final`. `published` is the commit in `building`; None: no commit."""


class LocalTableFolder(TableFolder):
    """The folder of a table on a disk. The table gets its name by a rename, so it is never in both folders."""

    def give_name(self) -> None:
        """Rename `building`. If another run has already renamed it to `final`, nothing is done.

        Raises StaleWriter if the table is in neither folder, and NotOurTable if something else has the folder `final`.
        """
        try:
            Path(str(self.building)).rename(str(self.final))
        except FileNotFoundError:
            if self.published() is None:
                raise stale(self.table) from None
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                raise
            raise NotOurTable(f"{self.final} was made by someone else; rename it") from error

    def make_durable(self, since: float) -> None:
        """Sync the files. Of the data files, only the visible ones are synced: there can be thousands of old files."""
        published = self.published()
        data_files = [] if published is None else visible_files(self.final, published.time)
        names = [PARTITION_METADATA, *(relative_name(file, self.final) for file in data_files)]
        partitions = sorted({name.rpartition("/")[0] for name in names} - {""})
        names += [f"{partition}/{PARTITION_METADATA}" for partition in partitions]
        folder = Path(str(self.final))
        least_changed = since - CLOCK_SECONDS  # files with an earlier modification time are durable already
        sync_tree(folder / ".hoodie", least_changed)
        paths = [folder / name for name in names]
        # Hadoop writes a checksum beside each file
        with_checksums = [variant for path in paths for variant in (path, path.with_name(f".{path.name}.crc"))]
        folders = [*(folder / partition for partition in partitions), folder, folder.parent]
        sync_changed([*with_checksums, *folders], least_changed)

    def _delete_building(self, spark: "SparkSession | None") -> None:  # noqa: ARG002 - for folders in a store
        files.delete_all([self.building, *self.building.tree()])

    def _has_final_name(self) -> bool:
        return self.final.exists()

    def _unmake_building(self) -> None:
        """Do nothing: the rename has removed the folder."""

    def _is_final_taken(self, published: Instant | None) -> bool:  # noqa: ARG002 - a rename leaves no part behind
        return self.final.exists()


class StoredTableFolder(TableFolder):
    """The folder of a table in an object store. The table gets its name by a copy of each file."""

    def give_name(self) -> None:
        """Copy all files into the final folder. An interrupted copy can be repeated.

        Raises StaleWriter if another run has deleted a file.
        """

        def copy(file: File) -> None:
            """Copy a file of `building` into `final`."""
            try:
                file.copy_to(self.final / relative_name(file, self.building))
            except FileNotFoundError:
                if not _stands_for_folder(file):  # such an object need not be copied; any other was deleted meanwhile
                    raise stale(self.table) from None

        # the properties make `final` a table, so all other files must be there before
        properties = self.building / PROPERTIES
        # `building` itself can be an object that stands for the folder: it is not copied
        other_files = [file for file in self.building.tree() if file not in {properties, self.building}]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(copy, other_files))
        copy(properties)
        self._unmake_building()

    def make_durable(self, since: float) -> None:
        """Do nothing: a file in a store is durable."""

    def _delete_building(self, spark: "SparkSession | None") -> None:
        """Delete the files of the folder. Objects that stand for folders are deleted only with `spark`."""
        if spark is None:
            files.delete_all([self.building, *self.building.tree()])
        elif self.building.is_there():
            context: Any = spark.sparkContext
            path = context._jvm.org.apache.hadoop.fs.Path(location(self.building))  # noqa: SLF001 - no public way
            path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)  # noqa: SLF001 - True: with contents

    def _has_final_name(self) -> bool:
        return is_table(self.final)

    def _unmake_building(self) -> None:
        """Delete `hoodie.properties` in `building`, so that Hudi does not take the folder for a table any more.

        Otherwise, after someone has dropped the copy in `final`, the next run would take `building` for a copy that was
        not finished.
        """
        (self.building / PROPERTIES).delete()

    def _is_final_taken(self, published: Instant | None) -> bool:
        """Whether `final` has a file that is not from an interrupted copy of `building`.

        If `published` is None, `building` was never copied, so each file counts. Objects without bytes do not count,
        because they stand for folders.
        """
        in_final = {relative_name(file, self.final) for file in self.final.tree() if file.size()}
        copied = set() if published is None else {relative_name(file, self.building) for file in self.building.tree()}
        not_copied = in_final - copied
        return bool(not_copied)


def _stands_for_folder(file: File) -> bool:
    """Whether the file is an object without bytes, which stands for a folder; False if there is no such object."""
    try:
        return file.size() == 0
    except FileNotFoundError:
        return False
