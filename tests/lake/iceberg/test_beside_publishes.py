"""Someone's maintenance by Spark's procedures beside a publish a second: each wins within a few tries.

A try that fails says so in Iceberg's words: a publish has deleted rows of its files, or combined its manifests.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.errors import MainMoved, StaleWriter
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.long("publishes for a minute")]

ROWS = 2_000
TRIES = 5
PROCEDURES = {
    "data files": "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "manifests": "rewrite_manifests('{t}')",
    "deletes": "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "expiry": "expire_snapshots(table => '{t}', retain_last => 1, older_than => TIMESTAMP '2999-01-01 00:00:00')",
}
CONFLICT = "CommitFailed|ValidationException"  # Iceberg's names of a commit that came between


class Publisher:
    """Publishes a change of some rows each second. `rows` is what readers see after the last publish."""

    def __init__(self, lake: Lake, step: int) -> None:
        self.rows = dict.fromkeys(range(ROWS), "first")
        self.publishes = 0
        self.stop = threading.Event()
        self.failed: BaseException | None = None
        self._lake, self._step = lake, step
        lake.published(*self.rows.items())

    def work(self) -> None:
        """Publish until the stop."""
        try:
            while not self.stop.wait(1.0):
                self._publish()
        except BaseException as error:  # noqa: BLE001 - raised by `beside`
            self.failed = error

    def _publish(self) -> None:
        number = self.publishes + 1
        keys = range(ROWS + number * 5, ROWS + number * 5 + 5) if not self._step else range(number, ROWS, self._step)
        changes = [(key, f"change {number}", False) for key in keys]
        while True:
            try:
                self._lake.publish(self._lake.merge(self._lake.loaded(), *changes, pos=20 + number))
                break
            except (MainMoved, StaleWriter):
                continue  # a run would merge again, too
        self.rows |= {key: value for key, value, _ in changes}
        self.publishes = number


@contextmanager
def publishing(publisher: Publisher) -> Iterator[None]:
    """Beside the block, publishes go on; the first ones have been made."""
    thread = threading.Thread(target=publisher.work)
    thread.start()
    try:
        while publisher.publishes < 3 and publisher.failed is None:
            time.sleep(0.1)
        yield
    finally:
        publisher.stop.set()
        thread.join()
    if publisher.failed is not None:
        raise publisher.failed


def tries(lake: Lake, spark: SparkSession, procedure: str) -> list[str]:
    """The reason why each try failed; fewer than TRIES if the procedure has won."""
    reasons: list[str] = []
    for _ in range(TRIES):
        try:
            spark.sql(f"CALL {CATALOG}.system.{PROCEDURES[procedure].format(t=lake.table)}").collect()
        except Py4JJavaError as error:
            reasons.append(str(error.java_exception))
        else:
            break
    return reasons


@pytest.mark.parametrize("step", [0, 100], ids=["inserts", "updates"])
def test_maintenance_beside_publishes(lake: Lake, spark: SparkSession, step: int) -> None:
    """Each publish is seen afterwards, whoever won."""
    publisher = Publisher(lake, step)
    outcomes = {}
    with publishing(publisher):
        for procedure in PROCEDURES:
            outcomes[procedure] = tries(lake, spark, procedure)
    assert lake.seen() == sorted(publisher.rows.items())
    for procedure, reasons in outcomes.items():
        assert len(reasons) < TRIES, (procedure, reasons)
        assert all(re.search(CONFLICT, reason) for reason in reasons), (procedure, reasons)
