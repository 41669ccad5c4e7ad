"""Spark can end during a run: its JVM, a Python worker or its executors are killed, cut off or run out of memory.

And executors may have a Python that cannot do the driver's work.
"""

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakeingest.errors import OperatorNeeded, Retryable, SparkLost

_CONNECT_SECONDS = 1.0
# Texts of Spark's errors when one of its processes ended while the JVM still runs, or is about to end.
_ENDED = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "Python worker exited unexpectedly",
    "EOFException occurred while reading the port number",  # of what starts the workers
    "java.lang.OutOfMemoryError",
    "ExecutorLostFailure",
    "Master removed our application",
    "All masters are unresponsive",
)
# How the JVM meets the end of a worker that it reads from or writes to, if not as the end of its data.
_CUT = re.compile(r"SocketException: .*\n(\s+at java\..*\n)+\s+at org\.apache\.spark\.api\.python\.(Base)?PythonRunner")
# Texts of Spark's errors when Python on the executors does not start, or is another one than the driver's.
_UNFIT = re.compile(r"Error from python worker:|PYTHON_VERSION_MISMATCH|Cannot run program")
_REASON = re.compile(r"^\s*(\w*Error\b.*|lakeingest: .*|.*Cannot run program.*|.*No module named .*)$", re.MULTILINE)


@contextmanager
def named_loss() -> Iterator[None]:
    """SparkLost for every error that is raised because Spark's JVM or a worker ended within the block.

    OperatorNeeded where the executors' Python cannot work for this driver.
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
    """Let PySpark forget a JVM that has ended, so that it starts another one."""
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
    """What the executors' Python lacks, in a line; None if the error has another reason."""
    found = next((text for text in map(str, _chain(error)) if _UNFIT.search(text)), None)
    if found is None or "pyspark" not in sys.modules:
        return None
    reasons = _REASON.findall(found.partition("Driver stacktrace")[0]) or ["it does not start"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"the executors' Python cannot do this driver's work: {reasons[-1].strip()};"
        f" they need Python {version}, which spark.pyspark.python names, and this lakeingest with its dependencies,"
        " installed there or by spark.archives"
    )


def _reason(error: BaseException) -> str | None:
    """What ended, in a line; None if the error has another reason."""
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JError, Py4JNetworkError

    for cause in _chain(error):
        if isinstance(cause, Py4JNetworkError):
            return "the connection to its JVM broke"
        text = str(cause)
        ended = next(
            (sign for sign in _ENDED if sign in text), "a Python worker is gone" if _CUT.search(text) else None
        )
        if ended is not None and (isinstance(cause, Py4JError) or type(cause).__module__.startswith("pyspark")):
            return ended
    return "its JVM is gone" if is_gone() else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and the errors that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
