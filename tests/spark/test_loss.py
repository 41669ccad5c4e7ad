"""Spark's errors that say that one of its processes has ended."""

import pytest
from pyspark.errors import PySparkRuntimeError

from lakeingest.errors import SparkLost
from lakeingest.spark.loss import named_loss

WAITED = """Job aborted due to stage failure: Lost task 5.0 in stage 0.0: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.NioSocketImpl.implRead(NioSocketImpl.java:328)
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:381)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:774)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext(PythonRunner.scala:525)"""

WROTE = """Job aborted due to stage failure: Lost task 1.0 in stage 1.0: java.net.SocketException: Broken pipe
\tat java.base/sun.nio.ch.NioSocketImpl.implWrite(NioSocketImpl.java:425)
\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)
\tat org.apache.spark.api.python.BasePythonRunner$WriterThread.$anonfun$run$1(PythonRunner.scala:454)
\tat org.apache.spark.util.Utils$.logUncaughtExceptions(Utils.scala:1928)"""


@pytest.mark.parametrize("text", [WAITED, WROTE])
def test_a_connection_to_a_worker_that_is_cut_is_a_lost_worker(text: str) -> None:
    """A worker that is killed while Spark reads from it or writes to it cuts the connection."""
    with pytest.raises(SparkLost, match="Spark ended during the run: a Python worker is gone"), named_loss():
        raise PySparkRuntimeError(text)


def test_another_connection_that_is_cut_is_no_lost_worker() -> None:
    """It passes as it is."""
    other = WAITED.replace("org.apache.spark.api.python.PythonRunner", "org.apache.hadoop.fs.s3a.S3AInputStream")
    with pytest.raises(PySparkRuntimeError), named_loss():
        raise PySparkRuntimeError(other)
