"""The package as a program uses it: values, typed errors, and a Spark session that it owns or only borrows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

import lakeingest
from lakeingest import Pipeline, UsageError
from lakeingest.config import Config, Source
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ConfigError
from lakeingest.pipeline.events import Event, WaveCommitted

ROOT = Path(__file__).parents[1]
DATABASE = "api_shop"
TABLE = f"{DATABASE}.orders"
ROWS = 100


@pytest.fixture(scope="module")
def connection(mysql_server: LocalServer) -> Iterator["pymysql.Connection[pymysql.cursors.Cursor]"]:
    """A connection to a database with one table of a few waves."""
    server = mysql_server
    with (
        pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        ) as opened,
        opened.cursor() as cursor,
    ):
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, note VARCHAR(90) NOT NULL)")
        cursor.executemany(f"INSERT INTO {TABLE} VALUES (%s, %s)", [(i, f"n{i} ".ljust(60, ".")) for i in range(ROWS)])
        cursor.execute(f"ANALYZE TABLE {TABLE}")
        yield opened
        cursor.execute(f"DROP DATABASE {DATABASE}")


@pytest.fixture
def config(connection: object, lake_config: Config, mysql_server: LocalServer, tmp_path: Path) -> Config:
    """The pipeline of that database into the warehouse of the session."""
    server = mysql_server
    password = SecretStr(server.password)
    return lake_config.model_copy(
        update={
            "source": Source(host=server.host, port=server.port, user=server.user, password=password),
            "tables": Tables(include=(f"{DATABASE}.*",), options={"*.*": TableOptions(chunk_rows=10)}),
            "state": Place.of(tmp_path / "state"),
        }
    )


def python(folder: Path, program: str, **variables: str) -> str:
    """What a program says on stdout, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_a_dozen_names_are_public() -> None:
    """Each is there."""
    assert len(lakeingest.__all__) == 12
    assert [name for name in lakeingest.__all__ if not hasattr(lakeingest, name)] == []


def test_the_import_is_light(tmp_path: Path) -> None:
    """Neither it nor a pipeline that is merely opened imports what takes seconds: every executor imports it too."""
    (tmp_path / "pipeline.yml").write_text(
        json.dumps({"name": "x", "source": {"host": "h", "user": "u"}, "tables": {"include": ["a.*"]}})
    )
    program = (
        "import sys; from lakeingest import Pipeline; Pipeline.from_yaml('pipeline.yml').close();"
        "heavy = {'pyspark', 'py4j', 'pyiceberg', 'great_expectations', 'pandas', 'pyarrow', 'IPython'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    assert python(tmp_path, program) == "[]\n"


def test_a_wrong_file_is_an_error_of_ours(tmp_path: Path) -> None:
    """Nothing ends the process: the class says who acts."""
    with pytest.raises(ConfigError, match="no-such"):
        Pipeline.from_yaml(tmp_path / "no-such.yml")


@pytest.mark.mysql
def test_a_sample_has_the_first_rows_and_their_window(
    config: Config, connection: "pymysql.Connection[pymysql.cursors.Cursor]"
) -> None:
    """As many as were asked for, in key order; the low watermark is what is executed, and the high stands after it."""
    pipeline = Pipeline(config)
    sample = pipeline.sample(TABLE, rows=3)
    assert list(sample.to_pandas()["id"]) == [0, 1, 2]
    assert str(sample.to_pandas()["id"].dtype) == "int32[pyarrow]"
    assert sample.rows["note"][0].as_py() == "n0 ".ljust(60, ".")
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.gtid_executed")
        [executed] = cursor.fetchone() or ()
        cursor.execute("SHOW BINARY LOG STATUS")
        file, position, *_ = cursor.fetchone() or ()
    assert str(sample.low) == executed.replace("\n", "").lower()
    assert str(sample.high) == f"{file}:{position}"
    shown = str(sample)
    assert shown.splitlines()[-1] == f"low watermark {sample.low}, high watermark {sample.high}"
    assert f"n0 {'.' * 36}…" in shown
    assert not config.state.path.exists()


@pytest.mark.mysql
def test_a_sample_of_a_small_table_is_all_of_it(config: Config) -> None:
    """The chunk has no upper bound then."""
    assert Pipeline(config).sample(TABLE, rows=ROWS + 1).rows.num_rows == ROWS


@pytest.mark.mysql
@pytest.mark.parametrize(("table", "rows"), [("shop.unheard_of", 5), (TABLE, 0)])
def test_a_sample_of_nothing_is_refused(config: Config, table: str, rows: int) -> None:
    """A table that is not included, or no row."""
    with pytest.raises(UsageError, match=table):
        Pipeline(config).sample(table, rows)


@pytest.mark.e2e
@pytest.mark.mysql
@pytest.mark.spark
def test_a_table_is_copied_and_proved_in_a_given_session(config: Config, spark: SparkSession) -> None:
    """Each step is one call, each result a table; Ctrl-C in mid-run loses nothing; the session goes on."""
    interrupted = list[Event]()
    events = list[Event]()

    def interrupt(event: Event) -> None:
        interrupted.append(event)
        if isinstance(event, WaveCommitted):
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # while the next wave is read

    def ctrl_c(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with Pipeline(config, spark) as pipeline:
        assert pipeline.check().ok
        assert [one.state for one in pipeline.plan(TABLE)] == ["new"]
        before = signal.signal(signal.SIGALRM, ctrl_c)
        try:
            with pytest.raises(KeyboardInterrupt):
                pipeline.run(TABLE, observe=interrupt)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        result = pipeline.run(TABLE, observe=events.append)
        assert (result.caught_up, result.tables[0].rows) == (True, ROWS)
        copied = [event for event in interrupted + events if isinstance(event, WaveCommitted)]
        assert [event.wave for event in copied] == list(range(1, len(copied) + 1))
        assert all(len(event.chunk_seconds) == event.chunks for event in copied)
        [status] = pipeline.status()
        assert (status.state, status.rows) == ("published", ROWS)
        assert pipeline.verify(TABLE).equal
        assert pipeline.spark is spark
    assert spark.range(3).count() == 3


@pytest.mark.spark
@pytest.mark.long("starts a process with another Spark")
def test_a_session_of_ones_own_is_started_with_our_settings(lake_config: Config, tmp_path: Path) -> None:
    """It is used, whatever else is in it, and never stopped; ours is kept from call to call, until `close`.

    What a process prints, and how it takes Ctrl-C, are as they were before.
    """
    doc = {"name": "own", "source": {"host": "h", "user": "u"}, "tables": {"include": ["a.*"]}}
    (tmp_path / "pipeline.yml").write_text(json.dumps(doc))
    program = """
import os, signal
from lakeingest import OperatorNeeded, Pipeline
handler = signal.getsignal(signal.SIGINT)
with Pipeline.from_yaml("pipeline.yml") as pipeline:
    first = pipeline.spark
    assert pipeline.spark is first
    assert signal.getsignal(signal.SIGINT) is handler
    os.write(1, b"seen\\n")
    borrowed = Pipeline(pipeline.config)
    assert borrowed.spark is first
    borrowed.close()
    assert first.range(2).count() == 2
from pyspark.sql import SparkSession
assert SparkSession.getActiveSession() is None
settings = pipeline.spark_settings()
settings["spark.sql.extensions"] += ",org.example.Another"
own = SparkSession.builder.config(map=settings).getOrCreate()
with Pipeline(pipeline.config, own) as given, pipeline:
    assert given.spark.range(4).count() == pipeline.spark.range(4).count() == 4
assert own.range(5).count() == 5
own.stop()
bare = SparkSession.builder.config("spark.sql.extensions", "").getOrCreate()
try:
    Pipeline(pipeline.config, bare)
except OperatorNeeded as error:
    print(error)
"""
    seen, refused = python(tmp_path, program).splitlines()
    assert seen == "seen"
    assert refused.startswith("the running Spark session lacks ")
    assert "spark.sql.extensions" in refused
