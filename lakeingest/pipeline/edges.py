"""Where every edge's exceptions get our names: the source, the lake, Spark, Great Expectations, the machine.

Each edge names its own. What is left after that is a bug of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.config import Source
from lakeingest.errors import Retryable
from lakeingest.lake.target import Target
from lakeingest.mysql.connection import named_errors
from lakeingest.spark.loss import named_loss


@contextmanager
def named(source: Source, target: Target) -> Iterator[None]:
    """Raise what fails in the block as a `LakeIngestError`, unless nothing but a bug of ours explains it.

    SourceAway, SplitUnstable, ChunkTooSlow, OperatorNeeded: of the server. StorageFailed, StateUnreadable, StaleWriter:
    of the lake. SparkLost: of Spark, also where Great Expectations tells of it. Retryable: a connection that broke, too
    little memory.
    """
    with _named_machine(), named_loss(), target.storage_errors(), named_errors(source):
        yield


@contextmanager
def _named_machine() -> Iterator[None]:
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        reason = f": {error}" if str(error) else ""
        raise Retryable(f"a connection broke{reason}; run the same command again") from error
