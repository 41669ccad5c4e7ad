"""Hudi: copy-on-write tables. Without branches, staging is a folder of our own, and a publish is one commit of Hudi's.

Properties of that commit (its metadata), always complete: `lakeingest.progress` all that the next step depends on ·
`lakeingest.version` the commit of staging that it made visible · `lakeingest.base` the version that readers saw before
· `lakeingest.table`, `.key`, `.buckets` what the next publish must repeat · `lakeingest.position`, `.epoch` for people.
A commit cannot be taken back unseen, so the gates run before it, on the rows that it will hold.
"""

import errno
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING
from urllib.parse import quote as encode
from urllib.parse import unquote as decode

from lakeingest import config
from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.disk import sync, sync_tree
from lakeingest.errors import NotOurTable, UnsupportedTable
from lakeingest.lake.errors import names_storage_errors, storage_errors
from lakeingest.lake.hudi.file_groups import assert_whole
from lakeingest.lake.hudi.staging import StagingCommit, StagingFolder, files_of
from lakeingest.lake.hudi.statement import configured, effects_of, merge_folder
from lakeingest.lake.hudi.timeline import PREFIX, VERSION, Instant, newest, retention
from lakeingest.lake.hudi.types import hudi_type
from lakeingest.lake.hudi.writer import HudiMerger, HudiWriter
from lakeingest.lake.marks import BUILDING, OWNER, progress_marks
from lakeingest.lake.refusals import published_by_another, stale
from lakeingest.lake.target import Bounds, Effects, Staged
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "lakeingest.key"
BUCKETS = "lakeingest.buckets"
CLOCK_SECONDS = 2.0  # that a file's time may be before the time of a clock
LOCK_SECONDS = 30.0  # that a publish waits for another one of the table
_NAME = re.compile(r"[\w$][\w$ -]*")
_META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
_BUCKET_BYTES = 32 << 20  # of staged files: each bucket is a file, and a merge writes the files that it touches anew
_BUCKETS_MIN = 4
_OPTIONS = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.index.type": "BUCKET",  # a key is looked for in one file only
    "hoodie.parquet.bloom.filter.enabled": "false",  # 430 KB in each file, which only other kinds of index look at
    "hoodie.metadata.enable": "false",  # a table of files beside the table, which a local listing does not need
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.datasource.write.commitmeta.key.prefix": f"{PREFIX}lakeingest.",
}


class HudiTarget:
    """`lake.target.Target` on Hudi tables that are found by their folders; `staging` is a folder of ours."""

    def __init__(self, settings: config.Target, staging: Path) -> None:
        self.settings, self._folder = settings, staging

    def exists(self) -> bool:
        """Whether there is a warehouse, or staging."""
        return self.settings.warehouse.exists() or self._folder.exists()

    @names_storage_errors
    def names(self) -> set[tuple[str, str]]:
        """All folders of Hudi's tables, and all of staging."""
        published = {path.parent for path in self.settings.warehouse.glob("*/*/.hoodie")}
        staged = (TableId.parse(decode(path.name)) for path in self._folder.glob("*"))
        return {
            *((decode(path.parent.name), decode(path.name.removesuffix(BUILDING))) for path in published),
            *map(self.settings.identifier, staged),
        }

    def storage_errors(self) -> AbstractContextManager[None]:
        """Names what fails in the warehouse."""
        return storage_errors(self.settings.warehouse)

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """The last commit of staging; an interrupted first publish is finished.

        Staging that does not build on what readers see is dropped, and begun again from that.
        """
        published, staging = self._published(table), self._staging(table)
        staged = self._resume_point(table, published)
        if published is not None and not self.settings.folder(table).exists():
            self._give_name(table)
        if staged is None or not staging.commits(staged.version):
            if staging.path.exists():
                staging.drop()
            if staged is not None and published is not None:
                staging.resume(staged.progress, json.loads(published.properties[KEY]), staged.version)
        return staged

    @names_storage_errors
    def inspect(self, table: TableId) -> Staged | None:
        """What `recover` would answer; nothing is changed."""
        return self._resume_point(table, self._published(table))

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Begin staging; the table itself is made by the first publish."""
        self.types(schema)
        if self._published(schema.table) is not None:
            raise stale(schema.table)
        made = self._staging(schema.table).begin(progress, schema.key, lake_schema(schema).empty_table())
        return Staged(progress, made.version, None)

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop staging; StaleWriter when another run has published or dropped it."""
        if self._published(table) is not None:
            raise stale(table)
        self._staging(table).drop()

    @names_storage_errors
    def writer(self, table: TableId) -> HudiWriter:
        """For the executors."""
        staging = self._staging(table)
        if staging.last() is None:
            raise stale(table)
        return HudiWriter(staging)

    @names_storage_errors
    def commit_wave(self, staged: Staged, files: Sequence[bytes], progress: Progress) -> Staged:
        """One commit of staging with a wave's files and its progress."""
        return self._commit(staged, progress, rows=[name.decode() for name in files])

    @names_storage_errors
    def merger(
        self,
        staged: Staged,
        key: Sequence[str],  # noqa: ARG002 - of the search for what is replaced, which the publish does
        bounds: Bounds | None,  # noqa: ARG002
    ) -> HudiMerger:
        """For the executors."""
        return HudiMerger(self._staging(staged.progress.table))

    @names_storage_errors
    def commit_merge(
        self,
        staged: Staged,
        open_spark: "Callable[[], SparkSession]",
        merged: Sequence[bytes],
        after: Callable[[Effects], Progress],
    ) -> tuple[Staged, Effects]:
        """One commit of staging with the changes, laid over the rows from now on; MERGE INTO is the publish."""
        table, names = staged.progress.table, [one.decode() for one in merged if one]
        staging = self._staging(table)
        last = staging.last()
        if last is None:
            raise stale(table)
        effects = Effects(0, 0, 0)
        if names:
            spark = open_spark()
            changes = spark.read.parquet(*(str(staging.path / name) for name in names))
            effects = effects_of(changes, self.read(table, staged.version, spark), last.key)
        return self._commit(staged, after(effects), changes=names), effects

    @names_storage_errors
    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of staging with nothing but progress."""
        return self._commit(staged, progress)

    @names_storage_errors
    def read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """The rows of one commit: the visible ones or those of the waves, under the changes since then."""
        published = self._published(table)
        if published is not None and published.version == version:
            return self._visible(table, published, spark)
        commits = self._since(table, published, version)
        names, merges = files_of(commits)
        if published is not None:
            rows = self._visible(table, published, spark)
        else:
            rows = spark.read.parquet(*(str(self._staging(table).path / name) for name in names))
        changes = self._changes(table, merges, commits[-1].key, spark)
        if changes is None:
            return rows
        kept_rows = rows.join(changes.select(*map(quote, commits[-1].key)), on=list(commits[-1].key), how="left_anti")
        if DELETED not in rows.columns:
            changes = changes.where(f"NOT {DELETED}").drop(DELETED)
        return kept_rows.unionByName(changes).select(*map(quote, rows.columns))

    def count(self, table: TableId, version: int) -> None:
        """Unknown: changes are laid over the rows when they are read."""

    @names_storage_errors
    def publish(
        self, staged: Staged, open_spark: "Callable[[], SparkSession]", properties: Mapping[str, str]
    ) -> Staged:
        """One commit of Hudi's: a bulk insert of all rows at first, then MERGE INTO of the changes since the last.

        Whoever publishes holds a lock of the JVM that commits: it is free when that is gone, and not before.
        """
        table, spark = staged.progress.table, open_spark()
        with self._publishing(table, spark):
            published = self._published(table)
            if staged.published != (None if published is None else published.version):
                raise published_by_another(table)
            if published is not None:
                assert_whole(table, self._place(table))
            commits = self._since(table, published, staged.version)
            names, merges = files_of(commits)
            self._staging(table).assert_whole([*names, *(name for merge in merges for name in merge)])
            began = time.time()
            try:
                self._write(table, published, commits, spark, properties)
            except Exception:
                if not self._is_published(table, staged.version):  # else only the answer was lost
                    raise
            if not self._is_published(table, staged.version):
                raise stale(table)
            if published is None:
                self._give_name(table)
            # readers see it before it is safe; until it is, staging is kept, and the spool
            sync_tree(self.settings.folder(table), began - CLOCK_SECONDS)
            sync(self.settings.folder(table).parent)
        self._staging(table).sweep(staged.version)
        return Staged(staged.progress, staged.version, staged.version)

    @names_storage_errors
    def properties(self, table: TableId) -> Mapping[str, str]:
        """Those of the commit that readers see."""
        published = self._published(table)
        return {} if published is None else published.properties

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The names of the Spark types; UnsupportedTable where Hudi has no such column, or no such key."""
        table = schema.table
        if not (_NAME.fullmatch(table.database) and _NAME.fullmatch(table.name)):
            raise UnsupportedTable("Hudi has only names of letters, digits, _, $, - and space; use Iceberg")
        if not schema.ordered:
            # its record keys are texts: how it makes them of bytes, decimals and times, and of '', is not known exactly
            raise UnsupportedTable(
                f"its key ({', '.join(schema.key)}) is not of integers, and Hudi has only these yet; use Iceberg, or"
                " tables.exclude"
            )
        return tuple(map(hudi_type, schema.lake_columns))

    def _resume_point(self, table: TableId, published: Instant | None) -> Staged | None:
        """Where the table is to be gone on from: the last commit of staging, iff that builds on what readers see.

        StateUnreadable where readers miss a file.
        """
        staging = self._staging(table)
        if published is None:
            commits = staging.commits()
            if not commits or commits[0].base is not None:  # it stood on a table that was dropped
                return None
            return Staged(commits[-1].progress, commits[-1].version, None)
        assert_whole(table, self._place(table))
        commits = staging.commits(published.version)
        if commits:
            return Staged(commits[-1].progress, commits[-1].version, published.version)
        return Staged(published.progress(table), published.version, published.version)

    def _published(self, table: TableId) -> Instant | None:
        """The commit that readers see, or will when the first publish is finished."""
        published = newest(table, self.settings.folder(table))
        if published is None and (self._building(table) / ".hoodie").is_dir():
            return newest(table, self._building(table), building=True)
        return published

    def _is_published(self, table: TableId, version: int) -> bool:
        published = self._published(table)
        return published is not None and published.version == version

    def _since(self, table: TableId, published: Instant | None, version: int) -> list[StagingCommit]:
        """The commits of staging after what readers see, up to a version; StaleWriter when that is not one of them."""
        commits = self._staging(table).commits(None if published is None else published.version)
        found = [commit.version for commit in commits]
        if version not in found:
            raise stale(table)
        return commits[0 if published is None else 1 : found.index(version) + 1]

    def _commit(
        self, staged: Staged, progress: Progress, rows: Sequence[str] = (), changes: Sequence[str] = ()
    ) -> Staged:
        commit = self._staging(progress.table).append(staged.version, progress, rows, changes)
        return Staged(progress, commit.version, staged.published)

    def _visible(self, table: TableId, published: Instant, spark: "SparkSession") -> "DataFrame":
        read = (
            spark.read.format("hudi").option("as.of.instant", published.time).option("hoodie.metadata.enable", "false")
        )
        return read.load(str(self._place(table))).drop(*(f"_hoodie_{name}" for name in _META))

    def _changes(
        self, table: TableId, merges: Sequence[Sequence[str]], key: Sequence[str], spark: "SparkSession"
    ) -> "DataFrame | None":
        """The last change of each key in the files of these merges, which stand in the order of their commits."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

        path = self._staging(table).path
        parts = [spark.read.parquet(*(str(path / name) for name in names)) for names in merges]
        if len(parts) < 2:  # noqa: PLR2004 - one merge has one change of a key
            return parts[0] if parts else None
        numbered = [part.select(F.struct("*").alias("change"), F.lit(n).alias("merge")) for n, part in enumerate(parts)]
        keys = [F.col(f"change.{quote(name)}").alias(f"key{n}") for n, name in enumerate(key)]
        last = reduce(DataFrame.union, numbered).groupBy(*keys).agg(F.max_by("change", "merge").alias("change"))
        return last.select("change.*")

    def _write(
        self,
        table: TableId,
        published: Instant | None,
        commits: Sequence[StagingCommit],
        spark: "SparkSession",
        properties: Mapping[str, str],
    ) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

        last, staging = commits[-1], self._staging(table)
        names, merges = files_of(commits)
        if published is None:
            size = sum((staging.path / name).stat().st_size for name in names)
            buckets = str(max(_BUCKETS_MIN, math.ceil(size / _BUCKET_BYTES)))
        else:
            buckets = published.properties[BUCKETS]
        marks = {
            OWNER: str(table),
            **progress_marks(last.progress, None if published is None else published.version),
            VERSION: str(last.version),
            KEY: json.dumps(last.key),
            BUCKETS: buckets,
            **properties,
        }
        options = (
            _OPTIONS
            | retention(self._place(table), self.settings.history)
            | {"hoodie.bucket.index.num.buckets": buckets}
        )
        options |= {PREFIX + name: value for name, value in marks.items()}
        if published is None:
            rmtree(self._building(table), ignore_errors=True)  # of a first publish that was broken off
            options["hoodie.table.name"] = table.name
            options["hoodie.datasource.write.recordkey.field"] = ",".join(last.key)
            options["hoodie.datasource.write.operation"] = "bulk_insert"
            rows = self.read(table, last.version, spark)
            rows.write.format("hudi").options(**options).mode("append").save(str(self._building(table)))
            return
        changes = self._changes(table, merges, last.key, spark)
        if changes is None:  # the commit is for its progress: nothing is merged into nothing
            changes = self._visible(table, published, spark).where("false").withColumn(DELETED, F.lit(False))
        with configured(spark, options):
            merge_folder(self._place(table), changes, last.key, spark)

    @contextmanager
    def _publishing(self, table: TableId, spark: "SparkSession") -> Iterator[None]:
        """Alone; StaleWriter where another JVM is at it for long. That of a run that was killed ends soon."""
        path = self._building(table).with_name(self.settings.folder(table).name + ".lakeingest.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        assert spark.sparkContext._jvm is not None  # noqa: S101, SLF001 - the session runs
        channel = spark.sparkContext._jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()  # noqa: SLF001
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while channel.tryLock() is None:
                if time.monotonic() > deadline:
                    raise stale(table)
                time.sleep(0.2)
            yield
        finally:
            channel.close()

    def _give_name(self, table: TableId) -> None:
        """Give a table its own name, unless another run has."""
        try:
            self._building(table).rename(self.settings.folder(table))
        except FileNotFoundError:
            if self._published(table) is None:
                raise stale(table) from None
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                raise
            raise NotOurTable(f"{self.settings.folder(table)} was made by someone else; rename it") from error

    def _staging(self, table: TableId) -> StagingFolder:
        return StagingFolder(table, self._folder / encode(str(table), safe=" "))

    def _building(self, table: TableId) -> Path:
        final = self.settings.folder(table)
        return final.with_name(final.name + BUILDING)

    def _place(self, table: TableId) -> Path:
        """The folder that the table is in."""
        final = self.settings.folder(table)
        return final if final.exists() else self._building(table)
