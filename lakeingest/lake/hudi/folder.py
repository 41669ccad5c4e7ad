"""The folder of a Hudi table: it has the table's name; until the first publish the table is in a folder beside it.

On a disk the first publish ends with a rename. An object store has none: the files are copied, and last the one without
which the folder is no table. So readers find the whole table, or none.
"""

import errno
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeingest.config.place import Place
from lakeingest.core.ownership import Owner
from lakeingest.core.schema import TableId
from lakeingest.disk import sync_changed, sync_tree
from lakeingest.errors import LakeIngestError, NotOurTable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.options import RECORD_KEY_MARK
from lakeingest.lake.hudi.table_form import PARTITION, PROPERTIES, declare_record_key
from lakeingest.lake.hudi.timeline import Instant, newest
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.ownership import PIPELINE, Ownership
from lakeingest.lake.refusals import not_ours, stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK_SECONDS = 2.0  # by so much a file's time may lag behind the clock
_AT_ONCE = 16  # how many files are copied at the same time


def location(file: File) -> str:
    """The name of a file or folder for Spark."""
    return Place.of(str(file)).hadoop


def is_table(folder: File) -> bool:
    """Whether Hudi takes a folder for a table."""
    return (folder / ".hoodie").is_dir() if isinstance(folder, Local) else (folder / PROPERTIES).exists()


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table. `ownership` is None where it does not matter whose the copy is."""

    table: TableId
    final: File
    ownership: Ownership | None = None

    @property
    def building(self) -> File:
        """The folder until the first publish."""
        return self.final.parent / (self.final.name + BUILDING)

    @property
    def place(self) -> File:
        """The folder where the table is now."""
        return self.final if self._is_named() else self.building

    def published(self) -> Instant | None:
        """The commit that readers see, or will see when the first publish is finished; None when there is none.

        Raises:
            NotOurTable: the folder is no copy of the table.
            ForeignWrite: someone else wrote to it after our last commit.
            NotOurCopy: it is the copy of another pipeline, or another pipeline makes the first copy.

        """
        instant = self._newest()
        properties = self.claimed() if instant is None else instant.properties
        if self.ownership is not None and properties is not None:
            self.ownership.assert_ours(self.table, properties)
        return instant

    def claimed(self) -> Mapping[str, str] | None:
        """The owner property of the pipeline that makes the first copy; None if no pipeline does."""
        try:
            return {PIPELINE: str(files.document(self._claim)[PIPELINE])}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return {PIPELINE: ""}

    def claim(self) -> None:
        """Begin the first copy. Of several pipelines one can: raises NotOurCopy when another one has begun it."""
        if self.ownership is None:
            return
        self._claim.parent.make_folder()
        mine = self.ownership.marks({})
        if not self._claim.create(mine) and (others := self.claimed()) is not None:
            self.ownership.assert_ours(self.table, others)
            self._claim.put_document(mine)

    def claim_for(self, owner: Owner) -> None:
        """Give the first copy to this pipeline, whichever one has begun it."""
        self._claim.parent.make_folder()
        self._claim.put_document({PIPELINE: owner.to_text()})

    @property
    def _claim(self) -> File:
        return self.final.parent / f"{self.final.name}.lakeingest.json"

    def _newest(self) -> Instant | None:
        if is_table(self.final):
            return newest(self.table, self.final)
        published = newest(self.table, self.building, building=True) if is_table(self.building) else None
        if self._is_taken(published):
            raise not_ours(str(self.final), self.table)
        return published

    def shows(self, version: int) -> bool:
        """Whether readers see this commit of staging."""
        published = self.published()
        return published is not None and published.version == version

    def give_name(self) -> None:
        """Give the table its final name. Raises NotOurTable when something else has it."""
        if isinstance(self.final, Local):
            self._rename(self.final)
        else:
            self._copy(self.final)
            self._forget_building()

    def name_record_key(self, published: Instant | None) -> None:
        """Write the record key that this commit gave the rows into the table's properties.

        Readers do not need the property. If a run ends after the commit and before this, the next run does it.
        """
        if published is not None and RECORD_KEY_MARK in published.properties:
            declare_record_key(self.place, published.names(RECORD_KEY_MARK))

    def finish(self, published: Instant) -> None:
        """Finish the interrupted publish of this commit."""
        if not self._is_named():
            self.give_name()
        elif isinstance(self.final, Stored):
            self._forget_building()
        self.name_record_key(published)

    def make_durable(self, since: float) -> None:
        """Make the files durable that were written since then, in seconds since 1970.

        A store's files are durable already. Of the data files only the visible ones are synced: thousands of older ones
        may be in the folder.
        """
        if not isinstance(self.final, Local):
            return
        published = self.published()
        seen = [] if published is None else visible_files(self.final, published.time)
        names = [PARTITION, *(file.name for file in seen)]
        sync_tree(self.final / ".hoodie", since - CLOCK_SECONDS)
        changed = [self.final / name for visible in names for name in (visible, f".{visible}.crc")]
        sync_changed([*changed, self.final, self.final.parent], since - CLOCK_SECONDS)

    def clear_building(self, spark: "SparkSession | None" = None) -> None:
        """Remove the folder of the first publish, unless it is another table's. The table must not be in it.

        In a store only Hadoop knows the objects that stand for folders; without Spark they stay.
        """
        if is_table(self.building):
            try:
                newest(self.table, self.building, building=True)
            except LakeIngestError:  # the source has a table of this name, or someone wrote to it
                return
        if spark is None or isinstance(self.building, Local):
            files.delete_all([self.building, *self.building.tree()])
        elif self.building.is_there():
            context: Any = spark.sparkContext
            path = context._jvm.org.apache.hadoop.fs.Path(location(self.building))  # noqa: SLF001 - no public way
            path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)  # noqa: SLF001

    def _is_named(self) -> bool:
        return self.final.exists() if isinstance(self.final, Local) else is_table(self.final)

    def _forget_building(self) -> None:
        """Let the copy be the only table. Otherwise the one in the other folder would be found again after a drop."""
        (self.building / PROPERTIES).delete()

    def _is_taken(self, published: Instant | None) -> bool:
        """Whether something else has the table's final folder. A part of the table's own copy does not count."""
        if isinstance(self.final, Local):
            return self.final.exists()
        present = {_below(file, self.final) for file in self.final.tree() if file.size()}
        ours = set() if published is None else {_below(file, self.building) for file in self.building.tree()}
        return not present <= ours

    def _copy(self, final: File) -> None:
        """Copy all files into the final folder. It may be repeated."""

        def copy(file: File) -> None:
            try:
                file.copy_to(final / _below(file, self.building))
            except FileNotFoundError:
                if file.size():  # otherwise an object that stands for a folder
                    raise stale(self.table) from None

        last = self.building / PROPERTIES  # makes the folder a table: readers must find all other files by then
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(copy, (file for file in self.building.tree() if file not in {last, self.building})))
        copy(last)

    def _rename(self, final: Local) -> None:
        try:
            Path(str(self.building)).rename(final)
        except FileNotFoundError:
            if self.published() is None:
                raise stale(self.table) from None
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                raise
            raise NotOurTable(f"{final} was made by someone else; rename it") from error


def _below(file: File, folder: File) -> str:
    """The name of a file relative to a folder."""
    return str(file).removeprefix(f"{folder}/")
