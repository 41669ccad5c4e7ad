"""Every edge's exceptions go through one place: what is not our bug has a name, an exit code and a runbook there."""

import errno
import sqlite3
from pathlib import Path

import pymysql
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyiceberg.exceptions import ValidationError
from pymysql.constants import CR, ER
from pyspark.errors import PySparkRuntimeError
from sqlalchemy.exc import IntegrityError, OperationalError

from lakeingest import exits
from lakeingest.config import Config, parse_config
from lakeingest.errors import LakeIngestError
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.run.edge_errors import translate_errors

RUNBOOKS = Path(__file__).parents[1] / "infra" / "runbooks"


def config(folder: Path, lake_format: str) -> Config:
    """A pipeline that is nowhere."""
    return parse_config(
        {
            "name": "edges",
            "source": {"host": "127.0.0.1", "user": "nobody"},
            "tables": {"include": ["none.*"]},
            "target": {"format": lake_format},
        },
        folder,
        {},
    )


def mysql(code: int) -> Exception:
    """An error of the server, or of the client."""
    return pymysql.err.OperationalError(code, "refused")


def postgresql(reported: str) -> Exception:
    """An error of a catalog on PostgreSQL, as SQLAlchemy raises it."""
    return OperationalError("SELECT 1", {}, Exception(reported))


def after(first: Exception, then: Exception) -> Exception:
    """An error that was raised while another one was handled, as Great Expectations raises its own."""
    then.__context__ = first
    return then


class TestConnectionError(Exception):
    """Great Expectations' name for a session that does not answer."""

    __test__ = False


MYSQL: dict[str, tuple[Exception, str, int]] = {
    "connection refused": (mysql(CR.CR_CONN_HOST_ERROR), "SourceAway", 75),
    "server gone": (mysql(CR.CR_SERVER_GONE_ERROR), "SourceAway", 75),
    "connection lost": (mysql(CR.CR_SERVER_LOST), "SourceAway", 75),
    "broken socket": (pymysql.err.InterfaceError(0, ""), "SourceAway", 75),
    "too many connections": (mysql(ER.CON_COUNT_ERROR), "SourceAway", 75),
    "session killed": (mysql(3169), "SourceAway", 75),
    "wrong password": (mysql(ER.ACCESS_DENIED_ERROR), "OperatorNeeded", 3),
    "missing grant": (mysql(ER.SPECIFIC_ACCESS_DENIED_ERROR), "OperatorNeeded", 3),
    "table dropped": (pymysql.err.ProgrammingError(ER.NO_SUCH_TABLE, "refused"), "SchemaChanged", 3),
    "column dropped": (mysql(ER.BAD_FIELD_ERROR), "SchemaChanged", 3),
    "not understood": (pymysql.err.ProgrammingError(ER.PARSE_ERROR, "refused"), "OperatorNeeded", 3),
    "query timeout": (mysql(ER.QUERY_TIMEOUT), "ChunkTooSlow", 3),
    "lock wait": (mysql(ER.LOCK_WAIT_TIMEOUT), "SplitUnstable", 75),
    "definition changed": (mysql(1412), "SplitUnstable", 75),
}
LAKE: dict[str, tuple[Exception, str, int]] = {
    "disk full": (OSError(errno.ENOSPC, "No space left on device"), "StorageFailed", 3),
    "read only": (OSError(errno.EROFS, "Read-only file system"), "StorageFailed", 3),
    "no permission": (PermissionError(errno.EACCES, "Permission denied"), "StorageFailed", 3),
    "disk broken": (OSError(errno.EIO, "Input/output error"), "StorageFailed", 3),
    "file gone": (FileNotFoundError(errno.ENOENT, "No such file or directory"), "StateUnreadable", 3),
    "file cut": (EOFError("ended"), "StateUnreadable", 3),
    "store unreachable": (OSError("When getting …: AWS Error NETWORK_CONNECTION during HeadObject"), "StorageAway", 75),
    "store slow": (OSError("When …: AWS Error SLOW_DOWN during PutObject operation"), "StorageAway", 75),
    "store fails": (OSError("When …: AWS Error UNKNOWN (HTTP status 502) during PutObject"), "StorageAway", 75),
    "store refuses": (OSError("When …: AWS Error ACCESS_DENIED during PutObject operation"), "StorageFailed", 3),
    "bucket gone": (OSError("When …: AWS Error NO_SUCH_BUCKET during PutObject operation"), "StorageFailed", 3),
}
ICEBERG: dict[str, tuple[Exception, str, int]] = {
    "metadata damaged": (ValidationError("no table"), "StateUnreadable", 3),
    "catalog locked": (sqlite3.OperationalError("database is locked"), "Retryable", 75),
    "catalog raced": (sqlite3.IntegrityError("UNIQUE constraint failed"), "Retryable", 75),
    "catalog full": (sqlite3.OperationalError("database or disk is full"), "StorageFailed", 3),
    "catalog damaged": (sqlite3.DatabaseError("file is not a database"), "StorageFailed", 3),
    "server raced": (IntegrityError("INSERT", {}, Exception("duplicate key")), "Retryable", 75),
    "server full": (postgresql("could not extend file: No space left on device"), "StorageFailed", 3),
}
SPARK: dict[str, tuple[Exception, str, int]] = {
    "answer lost": (Py4JNetworkError("Answer from Java side is empty"), "SparkLost", 75),
    "call of a dead JVM": (
        after(Py4JNetworkError("Error while sending"), Py4JError("An error occurred while calling o1.sql")),
        "SparkLost",
        75,
    ),
    "connection refused": (after(Py4JNetworkError(""), ConnectionRefusedError(111, "refused")), "SparkLost", 75),
    "context shut down": (Py4JError("Job 3 cancelled because SparkContext was shut down"), "SparkLost", 75),
    "context stopped": (PySparkRuntimeError("Cannot call methods on a stopped SparkContext."), "SparkLost", 75),
    "worker killed": (Py4JError("Python worker exited unexpectedly (crashed)"), "SparkLost", 75),
    "out of memory": (Py4JError("java.lang.OutOfMemoryError: Java heap space"), "SparkLost", 75),
}
QUALITY: dict[str, tuple[Exception, str, int]] = {
    "session does not answer": (after(Py4JNetworkError(""), TestConnectionError("attempt failed")), "SparkLost", 75),
}
MACHINE: dict[str, tuple[Exception, str, int]] = {
    "connection reset": (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Retryable", 75),
    "pipe broken": (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Retryable", 75),
    "time-out": (TimeoutError("timed out"), "Retryable", 75),
    "out of memory": (MemoryError(), "Retryable", 75),
    "too many files": (OSError(errno.EMFILE, "Too many open files"), "StorageFailed", 3),
}
EDGES = {"mysql": MYSQL, "lake": LAKE, "iceberg": ICEBERG, "spark": SPARK, "quality": QUALITY, "machine": MACHINE}


@pytest.mark.parametrize(
    ("edge", "what", "kind"),
    [
        (edge, what, kind)
        for edge, found in EDGES.items()
        for what in found
        for kind in ("iceberg", "hudi")
        if edge != "iceberg" or kind == "iceberg"
    ],
)
def test_what_is_not_our_bug_has_a_name_an_exit_code_and_a_runbook(
    edge: str, what: str, kind: str, tmp_path: Path
) -> None:
    """In one line, whatever the line was before."""
    raised, name, code = EDGES[edge][what]
    pipeline = config(tmp_path, kind)
    with pytest.raises(LakeIngestError) as reported, translate_errors(pipeline.source, open_target(pipeline)):
        raise raised
    assert (reported.value.runbook, exits.exit_code(reported.value)) == (name, code)
    assert reported.value.__cause__ is raised
    assert (RUNBOOKS / f"{name}.md").is_file()
    line = exits.message(reported.value)
    assert line.endswith(f"(runbook: {name})")
    assert "\n" not in line


@pytest.mark.parametrize(
    "bug", [ValueError("x"), KeyError("x"), TypeError("x"), AssertionError(), IndexError("x"), Py4JError("a method")]
)
def test_what_nobody_else_explains_is_a_bug_of_ours(bug: Exception, tmp_path: Path) -> None:
    """It passes as it is, and is exit code 70 with a runbook too."""
    pipeline = config(tmp_path, "iceberg")
    with pytest.raises(type(bug)) as reported, translate_errors(pipeline.source, open_target(pipeline)):
        raise bug
    assert reported.value is bug
    assert exits.exit_code(bug) == 70
    assert "runbook: InternalError" in exits.message(bug)


def test_an_error_that_has_a_name_keeps_it(tmp_path: Path) -> None:
    """Whichever edge gave it."""
    pipeline = config(tmp_path, "iceberg")
    error = LakeIngestError("named")
    with pytest.raises(LakeIngestError) as reported, translate_errors(pipeline.source, open_target(pipeline)):
        raise error
    assert reported.value is error
