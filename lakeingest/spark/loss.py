"""Loss of Spark during a run: its JVM, a Python worker or its executors are killed, cut off or run out of memory.

Also executors with a Python that cannot do the driver's work.
"""

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakeingest.errors import OperatorNeeded, Retryable, SparkLost

_CONNECT_SECONDS = 1.0
# Texts of Spark's errors after one of its processes has ended, while the JVM still runs or is about to end.
_ENDED = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "Python worker exited unexpectedly",
    "EOFException occurred while reading the port number",  # of the process that starts the workers
    "java.lang.OutOfMemoryError",
    "ExecutorLostFailure",
    "Master removed our application",
    "All masters are unresponsive",
)
# The JVM's error when a worker ends that it reads from or writes to, unless it sees the end of the worker's data.
_CUT = re.compile(r"SocketException: .*\n(\s+at java\..*\n)+\s+at org\.apache\.spark\.api\.python\.(Base)?PythonRunner")
# Texts of Spark's errors when Python on the executors does not start, or has another version than the driver's.
_UNFIT = re.compile(r"Error from python worker:|PYTHON_VERSION_MISMATCH|Cannot run program")
_REASON = re.compile(r"^\s*(\w*Error\b.*|lakeingest: .*|.*Cannot run program.*|.*No module named .*)$", re.MULTILINE)


@contextmanager
def named_loss() -> Iterator[None]:
    """Turn errors of the block into ours.

    Raises SparkLost if Spark's JVM or a worker has ended, OperatorNeeded if the executors' Python cannot work for this
    driver. Other errors are raised as they are.
    """
    try:
        yield
    except Retryable:
        raise
    except Exception as error:
        unfit = _unfit(error)
        if unfit is not None:
            raise OperatorNeeded(unfit) from error
        reason = _reason(error)
        if reason is None:
            raise
        raise SparkLost(f"Spark ended during the run: {reason}; run the same command again") from error


def is_gone() -> bool:
    """Whether PySpark's JVM has ended; False if none was started."""
    pyspark = sys.modules.get("pyspark")
    gateway: Any = None if pyspark is None else pyspark.SparkContext._gateway  # noqa: SLF001 - PySpark has no public way
    if gateway is None:
        return False
    at = gateway.gateway_parameters
    try:
        socket.create_connection((at.address, at.port), _CONNECT_SECONDS).close()
    except OSError:
        return True
    return False


def abandon() -> None:
    """Let PySpark forget a JVM that has ended, so that it can start another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    forgotten: Any = SparkContext
    context, gateway = forgotten._active_spark_context, forgotten._gateway  # noqa: SLF001 - PySpark has no public way
    if context is not None:
        context._jsc = None  # noqa: SLF001 - `stop` would call the JVM
        context.stop()
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()
    forgotten._gateway = forgotten._jvm = None  # noqa: SLF001
    session_class: Any = SparkSession
    session_class._instantiatedSession = session_class._activeSession = None  # noqa: SLF001


def _unfit(error: BaseException) -> str | None:
    """The message if the executors' Python cannot do the driver's work; None if the error has another reason."""
    text = next((text for text in map(str, _chain(error)) if _UNFIT.search(text)), None)
    if text is None or "pyspark" not in sys.modules:
        return None
    reasons = _REASON.findall(text.partition("Driver stacktrace")[0]) or ["it does not start"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"the executors' Python cannot do this driver's work: {reasons[-1].strip()};"
        f" they need Python {version}, which spark.pyspark.python names, and this lakeingest with its dependencies,"
        " installed there or by spark.archives"
    )


def _reason(error: BaseException) -> str | None:
    """The part of Spark that has ended, in one line; None if the error has another reason."""
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JError, Py4JNetworkError

    for cause in _chain(error):
        if isinstance(cause, Py4JNetworkError):
            return "the connection to its JVM broke"
        text = str(cause)
        reason = next((sign for sign in _ENDED if sign in text), None)
        if reason is None and _CUT.search(text):
            reason = "a Python worker is gone"
        if reason is not None and (isinstance(cause, Py4JError) or type(cause).__module__.startswith("pyspark")):
            return reason
    return "its JVM is gone" if is_gone() else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and the errors that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
