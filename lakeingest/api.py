"""The commands as methods in Python. A method returns its result as a value, or raises an error."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lakeingest.api_signals import SignalMethods
from lakeingest.config import Config, load_config
from lakeingest.drawing.frontend import in_notebook
from lakeingest.errors import UsageError

# The commands are imported when they are called, because the libraries that they import take seconds to load.
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakeingest.commands.at import PastVersions
    from lakeingest.commands.both_sides import BothSides
    from lakeingest.commands.check import CheckResult
    from lakeingest.commands.hand_over import HandOver
    from lakeingest.commands.past import PublishedVersions
    from lakeingest.commands.plan import Plans
    from lakeingest.commands.profile import TableProfile
    from lakeingest.commands.query import QueryResult
    from lakeingest.commands.run import RunResult
    from lakeingest.commands.sample import Sample
    from lakeingest.commands.status import Statuses
    from lakeingest.commands.verification import Verifications
    from lakeingest.commands.wait import Waited
    from lakeingest.commands.watch import Watched
    from lakeingest.pipeline.events import Observer


class Pipeline(SignalMethods):
    """A pipeline.yml and the commands for its tables. Tables are named `database.table`; no names mean all tables.

    If a Spark session is given or is running, the pipeline uses this session, and never stops it. The pipeline gives
    the session the settings of lakeingest that a running session can change. If the session was started without a
    setting that lakeingest needs, OperatorNeeded is raised.

    If no Spark session is given or running, the pipeline starts a session when it first needs one. `close` stops the
    session that the pipeline has started.

    `path` is the pipeline.yml that the configuration was read from; None if there is no such file.
    """

    def __init__(self, config: Config, spark: "SparkSession | None" = None, *, path: Path | None = None) -> None:
        self.config = config
        self._path = path
        self._given_session = spark
        self._started_session: SparkSession | None = None
        if spark is not None:
            from lakeingest.spark.session import fit_session

            fit_session(spark, config)

    @classmethod
    def from_yaml(cls, path: str | Path, spark: "SparkSession | None" = None) -> Self:
        """Load the pipeline in a file. Raises ConfigError, which names the mistakes in the file."""
        return cls(load_config(Path(path)), spark, path=Path(path).absolute())

    @classmethod
    def init(cls, path: str | Path, source: str, spark: "SparkSession | None" = None) -> Self:
        """Write a pipeline.yml for the tables of a source, as `lakeingest init --from-source` does, and load it.

        The password of the source is not written: `source` is `mysql://user@host:port/database`, and the variable
        MYSQL_PASSWORD has the password. Raises UsageError if the file exists.
        """
        from lakeingest.commands.init import init

        init(Path(path), source, os.environ)
        return cls.from_yaml(path, spark)

    def check(self, *, parity: bool = False, suites: bool = False) -> "CheckResult":
        """Check every precondition of a run. Nothing is changed; the result has the conditions that are not met.

        With `parity`, rows that were changed lately are read from the binlog and by SELECT, and compared. With
        `suites`, a sample of each table in the source is checked by the quality suites.
        """
        from lakeingest.commands.check import check
        from lakeingest.spark.session import active_session

        with self._session() as session:
            return check(self.config, session or active_session(), parity=parity, suites=suites)

    def plan(self, *tables: str) -> "Plans":
        """Plan what a run would do with each table. One chunk of each table is read, and nothing is changed."""
        from lakeingest.commands.plan import plan

        return plan(self.config, tables)

    def sample(self, table: str, rows: int = 5) -> "Sample":
        """The table's first rows and their watermarks, read as a run would read a chunk. Nothing is changed."""
        from lakeingest.commands.sample import sample

        return sample(self.config, table, rows)

    def profile(
        self, table: str, rows: int = 10_000, seed: int | None = None, *, write: bool = False
    ) -> "TableProfile":
        """Propose a quality suite for the table, from about `rows` rows over the whole table in the source.

        The result's `suite` is the text of the suite. `seed` draws the rows of an earlier profile again. With `write`,
        the suite is written to a new file in the folder of suites. The target is not used.
        """
        from lakeingest.commands.profile import profile

        return profile(self.config, table, rows, seed, write=write)

    def run(
        self,
        *tables: str,
        max_minutes: float | None = None,
        follow: bool = False,
        observe: "Observer | None" = None,
    ) -> "RunResult":
        """Copy new tables, apply the binlog, and publish. `observe` is called with each event.

        In a notebook, the progress is shown below the cell, unless `observe` is given.

        With `follow`, the run goes on until it is interrupted. When `max_minutes` are over, a run ends after its next
        commit. After an error or Ctrl-C, the same call continues from the last commit.
        """
        from lakeingest.commands.run import run
        from lakeingest.pipeline.events import unobserved

        observing: AbstractContextManager[Observer] = nullcontext(observe or unobserved)
        if observe is None and in_notebook():
            from lakeingest.notebook.live import live

            observing = live()
        with self._session() as session, observing as observer:
            return run(self.config, tables, max_minutes, observer, session, follow=follow)

    def status(self, *tables: str) -> "Statuses":
        """The state of each table; needs no Spark."""
        from lakeingest.commands.status import status

        return status(self.config, tables)

    def verify(
        self,
        *tables: str,
        repair: bool = False,
        sample: float | None = None,
        seed: int | None = None,
        max_seconds: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> "Verifications":
        """Compare source and target chunk by chunk. The result has the differences.

        Applications may write to the tables meanwhile. With `repair`, the rows that differ are read again, and compared
        once more; the result is the last comparison.

        `sample` is the share of each table's chunks that is compared; `seed` decides which chunks. After `max_seconds`
        no new chunk is begun. Only `columns` and the key's columns are compared. If only a part of a table was
        compared, the table is never `equal`: its `share` and `columns` say which part was compared, and `differs` says
        whether this part differs.
        """
        from lakeingest.commands import repair as repairing
        from lakeingest.commands.extent import Extent
        from lakeingest.commands.verify import verify

        extent = Extent.of(sample, seed, max_seconds, columns)
        with self._session() as session:
            if repair:
                return repairing.repair(self.config, tables, session, extent=extent)
            return verify(self.config, tables, session, extent)

    def changelog(self, table: str, since: str | None = None, *, follow: bool = False) -> "Iterator[pa.RecordBatch]":
        """Every row of the table as of one position, then its changes, as Arrow record batches; needs no Spark.

        With `since`, the iterator has only the changes after this position or time. `since` is written as for
        `lakeingest changelog --since`. With `follow`, the iterator does not end, and gives changes as they come.
        """
        from lakeingest.commands.changelog import changelog_of, since_of
        from lakeingest.commands.changelog_arrow import batches

        changelog = changelog_of(self.config, table)
        return batches(changelog, changelog.read(since_of(since), follow=follow))

    def versions(self, table: str) -> "PublishedVersions":
        """The versions of the copy that can still be read, the oldest first; needs no Spark."""
        from lakeingest.commands.past import published_versions

        return published_versions(self.config, table)

    def rows(self, table: str, version: int | None = None) -> "pa.Table":
        """The rows of a version of the copy, in key order; without `version`, the rows that readers see now.

        Needs no Spark.
        """
        from lakeingest.commands.past import rows

        return rows(self.config, table, version)

    def at(self, *tables: str, time: str | None = None, gtid: str | None = None) -> "PastVersions":
        """The version of each copy as of a time of the source, or as of a GTID set; needs no source and no Spark.

        `time` and `gtid` are written as for `lakeingest at`. The method `rows` reads one of these versions.
        """
        from lakeingest.commands.at import moment_of, versions_at

        return versions_at(self.config, moment_of(time, gtid), tables)

    def wait(
        self, *tables: str, until: str | None = None, gtid: str | None = None, max_seconds: float | None = None
    ) -> "Waited":
        """Wait until readers see all that the source has written by now, or the changes that `until` or `gtid` names.

        Both are written as for `lakeingest wait`. Raises Retryable after `max_seconds`; needs no Spark.
        """
        from lakeingest.commands.wait import goal_of, wait

        return wait(self.config, tables, goal_of(until, gtid), max_seconds=max_seconds)

    def query(self, sql: str) -> "QueryResult":
        """Ask a question in SQL of the rows that readers see now; needs no Spark, but `lakeingest[query]`.

        Tables are named `database.table`, quoted with `"` if necessary. Nothing but the copies can be read, and nothing
        can be changed.
        """
        from lakeingest.commands.query import query

        return query(self.config, sql)

    def compare(self, table: str, key: Any) -> "BothSides":
        """The row with this key in the source and in the copy; needs no Spark.

        `key` is a value of the key's column, or a list of values in the order of the key's columns. The source is read
        now. If its row differs from the copy's, the result also has the source's row as of the position of the copy,
        from the binlog.
        """
        from lakeingest.commands.both_sides import both_sides

        return both_sides(self.config, table, key)

    def watch(self, *tables: str, max_minutes: float | None = None, every_seconds: float = 2.0) -> "Watched":
        """Watch how far the copies are while a run, in any process, follows the source; needs no Spark.

        In a notebook, lag, throughput and freshness are drawn below the cell. The watch ends after `max_minutes`, at
        Ctrl-C, or when the run has ended.
        """
        from lakeingest.notebook.watching import watch_in_picture

        return watch_in_picture(self.config, tables, max_minutes=max_minutes, every=every_seconds)

    def hand_over(self, folder: str | Path | None = None, *, every: str = "10m") -> "HandOver":
        """Write files with which schedulers run this pipeline: for cron, Airflow, and the services in `submit`.

        The files are written to `folder`; the default is the folder `schedule` beside pipeline.yml. `every` is the time
        between two runs, such as 10m or 6h. Raises UsageError if a file exists with other contents, or if this pipeline
        was not loaded from a file.
        """
        from lakeingest.commands.hand_over import hand_over

        if self._path is None:
            raise UsageError("a scheduler runs a pipeline.yml: load the pipeline from it, by from_yaml")
        return hand_over(self.config, self._path, Path(folder or self._path.parent / "schedule"), every)

    @property
    def spark(self) -> "SparkSession":
        """The Spark session of this pipeline, for queries of the tables."""
        from lakeingest.spark.session import open_session

        with self._session() as session:
            return session or open_session(self.config)

    def spark_settings(self) -> dict[str, str]:
        """The settings with which you must start a session of your own: `SparkSession.builder.config(map=…)`."""
        from lakeingest.spark.settings import settings

        return settings(self.config)

    def close(self) -> None:
        """Stop the session that this pipeline has started. Later calls start a new session if they need one."""
        from lakeingest.spark.session import active_session

        started, running = self._started_session, active_session()
        self._started_session = None
        # the running session can be one that somebody else has started since
        if started is not None and running is not None and running.sparkContext is started.sparkContext:
            running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _session(self) -> Iterator["SparkSession | None"]:
        """The given session; None if none is given. If the block starts a session, `close` will stop it."""
        from lakeingest.spark.session import active_session

        running = self._given_session or active_session()
        try:
            yield self._given_session
        finally:
            if running is None:  # a session that runs now was started by the block
                self._started_session = active_session()
