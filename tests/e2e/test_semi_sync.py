"""A semi-synchronous source: a run copies no transaction before the replica has received it."""

import threading
from contextlib import suppress

import pymysql
import pytest

from lakeingest.errors import Retryable
from lakeingest.mysql import continuity
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import StartedOver
from tests.e2e.pipe import Pipe
from tests.e2e.semi_sync import SemiSyncPair
from tests.servers.replication import Address

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.parametrize("has_copy", [True, False], ids=["in a catch-up", "in a first copy"])
@pytest.mark.long("starts two more servers")
def test_a_transaction_that_the_replica_has_not_received_is_not_copied(
    semi_sync: SemiSyncPair,
    address: Address,
    pipe_there: Pipe,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_copy: bool,
) -> None:
    """A run waits for it, and ends with an error. Then the source is killed, and the replica takes over without it.

    The commit has not ended: no client knows of the transaction.
    """
    monkeypatch.setattr(continuity, "EXECUTED_WITHIN_SECONDS", 1)
    pipe = pipe_there
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    if has_copy:
        pipe.run()
    pipe.sql("UPDATE t SET v = 10 WHERE id = 1")
    semi_sync.await_replica()
    query(semi_sync.primary, "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON")
    semi_sync.level()
    query(semi_sync.replica, "STOP REPLICA IO_THREAD")
    waiting = threading.Thread(target=update, args=(pipe,))
    waiting.start()
    semi_sync.await_status("Rpl_semi_sync_source_wait_sessions", "1")
    with pytest.raises(Retryable, match="in the binlog but not executed"):
        pipe.run()
    over = semi_sync.kill(address)
    waiting.join()
    pipe.connection = over.primary
    pipe.sql(f"USE {pipe.database}", "UPDATE t SET v = 30 WHERE id = 3")
    assert pipe.run().stopped == ()
    assert not pipe.seen(StartedOver)
    assert pipe.rows("t") == [(1, 10), (2, 2), (3, 30)]
    pipe.assert_equal()


def update(pipe: Pipe) -> None:
    """Change a row; the server is killed before it answers."""
    with suppress(pymysql.err.MySQLError):
        pipe.sql("UPDATE t SET v = 20 WHERE id = 2")
