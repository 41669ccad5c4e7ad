"""Preflight of `source.replica`."""

from collections.abc import Callable, Iterator

import pytest

from lakeingest.config import Source
from lakeingest.config.source import Replica
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql import replica
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.preflight.replica import replica_conditions
from lakeingest.mysql.preflight.server import Server
from tests.mysql.test_connection import source_of
from tests.servers.accounts import COPIER, make_copier
from tests.servers.replication import Pair, administrator, replicating

pytestmark = pytest.mark.mysql

PLAIN = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source and its replica."""
    with replicating(mysql_server_with) as both:
        yield both


def found(source: Source, *tables: TableId) -> dict[str, str]:
    """What is wrong, by the condition's name."""
    with connect(source) as connection:
        checked = replica_conditions(source, Server.of(connection, tables))
    assert all(condition.fatal for condition in checked)
    return {condition.name: condition.finding for condition in checked if condition.finding}


def beside(pair: Pair, port: int) -> Source:
    """The source, with rows from the server of another port."""
    return pair.source.model_copy(update={"replica": Replica(host="127.0.0.1", port=port)})


@pytest.mark.long("takes seconds")
def test_a_replica_that_follows_is_accepted(pair: Pair) -> None:
    """With each of its conditions, which are asked only where there is a replica."""
    assert found(pair.source) == {}
    with connect(pair.source) as connection:
        server = Server.of(connection)
        assert len({condition.name for condition in replica_conditions(pair.source, server)}) > 5
        assert replica_conditions(pair.source.model_copy(update={"replica": None}), server) == ()


@pytest.mark.long("a server of its own for one line")
def test_a_source_without_gtids_cannot_have_a_replica(
    server_of: Callable[..., LocalServer], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """MariaDB has none that tell what is visible. The replica is not asked."""
    for server in (mysql_server_with(**PLAIN), server_of(MARIADB_11_4)):
        findings = found(source_of(server, replica={"host": "nobody.invalid"}))
        assert findings.keys() == {"GTIDs for the replica"}
        assert "set gtid_mode = ON, or remove source.replica" in findings["GTIDs for the replica"]


@pytest.mark.parametrize(("flavor", "settings"), [(MYSQL, PLAIN), (MARIADB_11_4, {})], ids=["MySQL", "MariaDB"])
@pytest.mark.long("a server of its own for one line", only=("MySQL",))
def test_a_replica_without_gtids_is_refused(
    pair: Pair, server_of: Callable[..., LocalServer], flavor: Flavor, settings: dict[str, str]
) -> None:
    """It cannot say what its rows contain."""
    server = server_of(flavor, **settings)
    with administrator(server) as connection:
        make_copier(connection, "*")
        try:
            assert "set gtid_mode = ON there" in found(beside(pair, server.port))["GTIDs of the replica"]
        finally:
            query(connection, f"DROP USER {COPIER}")


def test_a_replica_that_is_the_source_is_refused(pair: Pair) -> None:
    """It would spare nobody."""
    findings = found(beside(pair, pair.source.port))
    assert findings == {
        "replica is another server": "source.replica leads to the source itself; name its replica, or remove"
        " source.replica"
    }


def test_a_replica_that_is_away_is_named(pair: Pair) -> None:
    """With its own address, not the one of the source."""
    findings = found(beside(pair, 1))
    assert findings.keys() == {"connection to the replica"}
    assert "127.0.0.1:1 is away" in findings["connection to the replica"]


def test_a_transaction_that_only_the_replica_has_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its GTID."""
    monkeypatch.setattr(replica, "COMMIT_SECONDS", 1)
    query(pair.replica, "CREATE DATABASE own")
    query(pair.replica, "DROP DATABASE own")
    [(uuid,)] = query(pair.replica, "SELECT @@server_uuid")
    findings = found(pair.source)
    assert findings.keys() == {"transactions of the replica"}
    assert f"lacks: {uuid}:1-2; set up the replica again" in findings["transactions of the replica"]


def test_a_table_of_another_engine_is_named(pair: Pair) -> None:
    """It has no read views there, whatever it is on the source."""
    query(pair.primary, "CREATE DATABASE own")
    try:
        query(pair.primary, "CREATE TABLE own.t (id INT PRIMARY KEY)")
        pair.level()
        pair.unlogged("ALTER TABLE own.t ENGINE = MyISAM")
        assert found(pair.source, TableId("own", "t")) == {
            "InnoDB on the replica": "not InnoDB: own.t (MyISAM); convert or exclude them"
        }
    finally:
        query(pair.primary, "DROP DATABASE own")


@pytest.mark.parametrize(
    ("filters", "finding"),
    [
        ("REPLICATE_DO_DB = (shop)", "the replica leaves changes out by replicate_do_db; remove the filters"),
        (
            "REPLICATE_IGNORE_TABLE = (shop.log, mysql.a)",
            "the replica leaves changes out by replicate_ignore_table; remove the filters",
        ),
        ("REPLICATE_IGNORE_TABLE = (mysql.rds_history, mysql.rds_sysinfo)", None),
    ],
)
def test_a_replica_that_leaves_changes_out_is_refused(pair: Pair, filters: str, finding: str | None) -> None:
    """Its GTIDs do not show it. Tables that a service ignores are no tables of users."""
    query(pair.replica, "STOP REPLICA SQL_THREAD")
    try:
        query(pair.replica, f"CHANGE REPLICATION FILTER {filters}")
        assert found(pair.source).get("filters of the replica") == finding
    finally:
        query(pair.replica, "CHANGE REPLICATION FILTER REPLICATE_DO_DB = (), REPLICATE_IGNORE_TABLE = ()")
        query(pair.replica, "START REPLICA SQL_THREAD")
