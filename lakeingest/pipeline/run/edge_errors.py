"""Exceptions of the source, the lake, Spark, Great Expectations and the machine become errors of lakeingest.

Each package that talks to one of these translates its exceptions; here, all packages do this in one block. Any other
exception is a bug of lakeingest.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.config import Source
from lakeingest.errors import Retryable
from lakeingest.lake.target import Tables
from lakeingest.mysql.connection import named_errors
from lakeingest.spark.loss import named_loss


@contextmanager
def translate_errors(source: Source, target: Tables) -> Iterator[None]:
    """Turn exceptions of the block into `LakeIngestError`. An exception that shows a bug of lakeingest passes as it is.

    Raises:
        SourceAway, SplitUnstable, ChunkTooSlow, OperatorNeeded: the server failed, or refused something.
        StorageFailed, StateUnreadable, StaleWriter: the lake failed, or somebody else writes to it.
        SparkLost: Spark has ended, even if Great Expectations reports this as an error of its own.
        Retryable: a connection broke, or the machine has too little memory.

    """
    with _translate_connection_errors(), named_loss(), target.storage_errors(), named_errors(source):
        yield


@contextmanager
def _translate_connection_errors() -> Iterator[None]:
    """Raise Retryable for a connection that broke in the block."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        reason = f": {error}" if str(error) else ""
        raise Retryable(f"a connection broke{reason}; run the same command again") from error
