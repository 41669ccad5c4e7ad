"""Recognises errors that mean that Spark was lost during a run, or that its executors have an unfit Python.

Spark is lost if its JVM, a Python worker or an executor is killed, cannot be reached, or runs out of memory.
"""

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakeingest.errors import OperatorNeeded, Retryable, SparkLost

_CONNECT_SECONDS = 1.0
# Texts in Spark's errors after one of its processes has ended
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
# The JVM's error if a worker ends while the JVM writes to it or reads from it
_CUT = re.compile(r"SocketException: .*\n(\s+at java\..*\n)+\s+at org\.apache\.spark\.api\.python\.(Base)?PythonRunner")
# Texts in Spark's errors if Python on the executors does not start, or does not have the driver's version
_UNFIT = re.compile(r"Error from python worker:|PYTHON_VERSION_MISMATCH|Cannot run program")
_REASON = re.compile(r"^\s*(\w*Error\b.*|lakeingest: .*|.*Cannot run program.*|.*No module named .*)$", re.MULTILINE)


@contextmanager
def named_loss() -> Iterator[None]:
    """Raise SparkLost in place of an error of the block, if Spark's loss has caused the error.

    Raises OperatorNeeded if the executors' Python cannot do the driver's work. Other errors stay as they are.
    """
    try:
        yield
    except Retryable:  # its reason is already known
        raise
    except Exception as error:
        misfit = _python_misfit(error)
        if misfit is not None:
            raise OperatorNeeded(misfit) from error
        loss = _how_lost(error)
        if loss is None:
            raise
        raise SparkLost(f"Spark ended during the run: {loss}; run the same command again") from error


def has_jvm_ended() -> bool:
    """Whether PySpark's JVM has ended: it does not accept a connection. False if no JVM was started."""
    pyspark = sys.modules.get("pyspark")
    gateway: Any = None if pyspark is None else pyspark.SparkContext._gateway  # noqa: SLF001 - PySpark has no public way
    if gateway is None:
        return False
    parameters = gateway.gateway_parameters
    try:
        socket.create_connection((parameters.address, parameters.port), _CONNECT_SECONDS).close()
    except OSError:
        return True
    return False


def forget_jvm() -> None:
    """Let PySpark forget a JVM that has ended, so that it can start another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context_class: Any = SparkContext
    context, gateway = context_class._active_spark_context, context_class._gateway  # noqa: SLF001 - no public way
    if context is not None:
        context._jsc = None  # noqa: SLF001 - otherwise `stop` would call the JVM
        context.stop()
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()
    context_class._gateway = context_class._jvm = None  # noqa: SLF001
    session_class: Any = SparkSession
    session_class._instantiatedSession = session_class._activeSession = None  # noqa: SLF001


def _python_misfit(error: BaseException) -> str | None:
    """The message for an error that an unfit Python on the executors has caused; None for other errors."""
    text = next((text for text in map(str, _causes(error)) if _UNFIT.search(text)), None)
    if text is None or "pyspark" not in sys.modules:  # without PySpark in this process, the error is not Spark's
        return None
    # the last reason is shown: a traceback of Python names its error at the end
    reasons = _REASON.findall(text.partition("Driver stacktrace")[0]) or ["it does not start"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"the executors' Python cannot do this driver's work: {reasons[-1].strip()};"
        f" they need Python {version}, which spark.pyspark.python names, and this lakeingest with its dependencies,"
        " installed there or by spark.archives"
    )


def _how_lost(error: BaseException) -> str | None:
    """How Spark was lost, in one line, if its loss has caused the error; None for other errors."""
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JError, Py4JNetworkError

    for cause in _causes(error):
        if isinstance(cause, Py4JNetworkError):
            return "the connection to its JVM broke"
        text = str(cause)
        sign = next((sign for sign in _ENDED if sign in text), None)  # the part of the text that tells of a loss
        if sign is None and _CUT.search(text):
            sign = "a Python worker is gone"
        is_sparks_own = isinstance(cause, Py4JError) or type(cause).__module__.startswith("pyspark")
        if sign is not None and is_sparks_own:  # another error may have such a text by chance
            return sign
    return "its JVM is gone" if has_jvm_ended() else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its cause (or the error in whose handling it was raised), the cause of that error, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
