"""Where a notebook works: on a sample source that it may change, or on a database of the user's, which it only reads.

The environment chooses: `LAKEINGEST_CONFIG` names a pipeline.yml, `LAKEINGEST_TABLE` one of its tables, and
`LAKEINGEST_SOURCE` the source for a pipeline.yml that is still to be written. Without them, a sample source is started.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lakeingest.commands.init import PASSWORD
from lakeingest.commands.status import TableStatus
from lakeingest.config import Config, load_config
from lakeingest.core.printable import printable
from lakeingest.core.tables.keys import quote
from lakeingest.demo.sample import TABLE, SampleSource, sample_source
from lakeingest.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeingest.demo.race import Race

CONFIG, ONE_TABLE, SOURCE = "LAKEINGEST_CONFIG", "LAKEINGEST_TABLE", "LAKEINGEST_SOURCE"
_CHUNK_ROWS = 400  # so that the shop is copied in several waves
_END_SECONDS = 60
# Copies for practice are small: Java's optimising compiler would take more time than it saves
_SPARK = {"conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}}


@dataclass(frozen=True, slots=True, repr=False)
class Workspace:
    """The place of a notebook's work. `close` ends what the workspace has started, and removes the workspace's folder.

    `path`: the pipeline.yml. `overrides`: values in place of those in the file, as for `--set`. `url`: the source, for
    a file that is still to be written. `table`: the table to look at; None if nobody has named one. `sample`: the
    sample source; None if the source is the user's. `is_practice`: tables and state are in a folder that is removed.
    """

    path: Path
    table: str | None
    url: str | None = None
    sample: SampleSource | None = None
    overrides: tuple[str, ...] = ()
    is_practice: bool = False
    stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def onboarding(cls) -> Self:
        """A place for a new pipeline: on the user's source if the environment names it, or else on a sample source.

        Raises UsageError if the file that LAKEINGEST_CONFIG names is missing, and LAKEINGEST_SOURCE is not set.
        """
        table, url = os.environ.get(ONE_TABLE), os.environ.get(SOURCE)
        if CONFIG in os.environ or url is not None:
            path = Path(os.environ.get(CONFIG, "pipeline.yml")).absolute()
            if url is None and not path.exists():
                raise UsageError(f"{path} does not exist; set {SOURCE}=mysql://user@host:port/database to write it")
            return cls(path, table, url)
        folder, stack = _own_folder()
        sample = _started_sample(folder, stack)
        return cls(folder / "pipeline.yml", table, sample.url, sample, stack=stack)

    @classmethod
    def practice(cls, *, companions: bool = False) -> Self:
        """A place with tables and state of its own, in a folder that is removed, so that a copy may be broken there.

        The source is that of LAKEINGEST_CONFIG, with only the table LAKEINGEST_TABLE; or the sample source.
        `companions`: beside each copy are its history and, on Iceberg, its changes as a table.

        Raises UsageError if LAKEINGEST_CONFIG is set, and LAKEINGEST_TABLE is not.
        """
        config, table = os.environ.get(CONFIG), os.environ.get(ONE_TABLE)
        if config is not None and table is None:
            raise UsageError(f"set {ONE_TABLE} to a table of {config}, database.table: it is copied for practice")
        folder, stack = _own_folder()
        (folder / "quality").mkdir()
        if config is None or table is None:
            sample, path = _started_sample(folder, stack), folder / "pipeline.yml"
            more = _beside("iceberg") if companions else {}  # the pipeline of the sample has the default format
            _write_pipeline(path, sample, more)
            return cls(path, table or TABLE, sample=sample, is_practice=True, stack=stack)
        path = Path(config).absolute()
        overrides = _of_practice(load_config(path), table, folder, companions=companions)
        return cls(path, table, overrides=overrides, is_practice=True, stack=stack)

    @property
    def is_sample(self) -> bool:
        """Whether the source is the sample source, which the notebook may change."""
        return self.sample is not None

    @property
    def config(self) -> Config:
        """The configuration in the file, with the overrides."""
        return load_config(self.path, self.overrides)

    def make_suites_folder(self) -> Path:
        """Make the folder of suites, of pipeline.yml or else the default one, if it is missing. Returns the folder."""
        quality = self.config.quality
        folder = quality.folder or quality.default_folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sql(self, *statements: str) -> str:
        """Execute statements in the sample source. A database of the user's is not changed; the result says so."""
        if self.sample is None:
            return "the source is yours: nothing was changed in it"
        self.sample.sql(*statements)
        return f"{len(statements)} statements were executed"

    def write(self, changes: int) -> str:
        """Let writers change about `changes` rows of the sample source. A user's own database is not changed.

        Returns a sentence that says what was done.
        """
        if self.sample is None:
            return "the source is yours: nothing was changed in it"
        self.sample.write(changes)
        return f"writers have changed about {changes:,} rows"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within the block, writers change the sample source. A database of the user's is not changed."""
        with nullcontext() if self.sample is None else self.sample.writing():
            yield

    def damage(self, spark: "SparkSession", copy: TableStatus) -> str:
        """Change a copy as somebody else would, with Spark. Returns a sentence that says what was changed.

        Raises UsageError unless the copy is one for practice.
        """
        if not self.is_practice:
            raise UsageError("only a copy for practice is damaged")
        if self.config.target.format == "iceberg":
            spark.sql(f"DELETE FROM {copy.target} WHERE true")
            return f"all rows of {printable(copy.target)} were deleted"
        folder = self.config.target.folder(copy.table)
        lines = (folder.path / ".hoodie" / "hoodie.properties").read_text(encoding="utf-8").splitlines()
        properties = dict(line.partition("=")[::2] for line in lines)  # [::2] leaves out the equals sign
        options = {
            "hoodie.table.name": properties["hoodie.table.name"],
            "hoodie.datasource.write.recordkey.field": properties["hoodie.table.recordkey.fields"],
        }
        rows = spark.read.format("hudi").load(folder.hadoop).limit(1)
        written = rows.select(*(quote(name) for name in rows.columns if not name.startswith("_hoodie_")))
        written.write.format("hudi").options(**options).mode("append").save(folder.hadoop)
        return f"a row was written to {printable(str(folder))}"

    def race(self) -> "Race":
        """The race of `demo.race` on the sample source; if the source is the user's, on a sample source of its own."""
        from lakeingest.demo.race import race

        if self.sample is not None:
            return race(self.sample)
        with tempfile.TemporaryDirectory(prefix="lakeingest-") as folder, sample_source(Path(folder), rows=100) as own:
            return race(own)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within the block, `lakeingest run --follow` works in another process, as it would on another machine."""
        words = [word for override in self.overrides for word in ("--set", override)]
        command = [sys.executable, "-m", "lakeingest", "run", "--follow", "-c", str(self.path), *words]
        with tempfile.TemporaryFile() as log:
            run = subprocess.Popen(command, cwd=self.path.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                yield
            finally:
                run.send_signal(signal.SIGTERM)  # it ends after a commit
                try:
                    run.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    run.kill()
                    run.wait()

    def close(self) -> None:
        """End the sample source, and remove the folder of the sample or of the practice."""
        self.stack.close()

    def __repr__(self) -> str:
        source = "a sample source, which ends with this kernel" if self.is_sample else "your source, which is only read"
        own = "; tables and state are in a folder of its own" if self.overrides else ""
        return printable(f"{self.path}: {source}{own}")


def _started_sample(folder: Path, stack: ExitStack) -> SampleSource:
    """Start the sample source, which ends when the stack is closed. Its password is in the variable MYSQL_PASSWORD."""
    sample = stack.enter_context(sample_source(folder / "server"))
    os.environ[PASSWORD] = sample.server.password
    return sample


def _beside(lake_format: str) -> dict[str, Any]:
    """The keys that ask for tables beside copies, as far as the format has them."""
    return {"history": "scd2", "changelog": {"table": lake_format == "iceberg"}}


def _write_pipeline(path: Path, sample: SampleSource, more: Mapping[str, Any]) -> None:
    """Write a pipeline.yml for the shop, which is copied in many small chunks."""
    account = {"host": sample.server.host, "port": sample.server.port, "user": sample.server.user}
    doc = {
        "name": "practice",
        "source": {**account, "password": f"${{{PASSWORD}}}"},
        "tables": {"include": ["shop.*"], "options": {"shop.*": {"chunk_rows": _CHUNK_ROWS}}},
        "spark": _SPARK,
        **more,
    }
    path.write_text(json.dumps(doc, indent=2), encoding="utf-8")


def _own_folder() -> tuple[Path, ExitStack]:
    """A new folder, and a stack. The folder is removed when the stack is closed."""
    folder, stack = Path(tempfile.mkdtemp(prefix="lakeingest-")), ExitStack()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder, stack


def _of_practice(config: Config, table: str, folder: Path, *, companions: bool) -> tuple[str, ...]:
    """The overrides with which a pipeline copies only this table, to `folder`, and without metrics and notices."""
    values: dict[str, Any] = {
        "name": "practice",
        "tables.include": [f"re:{re.escape(table)}"],
        "tables.exclude": [],
        "target": {"format": config.target.format, "warehouse": str(folder / "warehouse")},
        "state": str(folder / "state"),
        "quality": {"suites": str(folder / "quality")},
        "metrics": {},
        "notify": {},
        "spark": _SPARK,
        "submit": {},
        **(_beside(config.target.format) if companions else {}),
    }
    return tuple(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
