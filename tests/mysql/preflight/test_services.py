"""Preflight on managed services and on Galera.

No service can be asked here. What servers of each report is recorded from public dumps and sessions, and laid over the
variables of a real server; the procedures of Amazon RDS are made on it as Amazon documents them.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pymysql
import pytest

from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer, local_server, reserved_port
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.preflight import server as preflight
from lakeingest.mysql.preflight.server import RETENTION_VARIABLES, Server, ask, retention, service
from lakeingest.mysql.preflight.service import AURORA, AZURE, CLOUD_SQL, OWN, RDS, Service, service_of
from lakeingest.mysql.source import Source
from tests.mysql.database import Db, database_on
from tests.mysql.test_connection import source_of
from tests.servers import pinned

REPORTED: dict[str, tuple[Mapping[str, str], Service]] = {
    "RDS for MySQL": ({"version": "8.0.28", "basedir": "/rdsdbbin/mysql-8.0.28.R4/"}, RDS),
    "RDS for MariaDB": (
        {"version": "10.11.7-MariaDB", "version_comment": "managed by https://aws.amazon.com/rds/"},
        RDS,
    ),
    "Aurora": ({"version": "8.0.28", "aurora_version": "3.04.0", "basedir": "/rdsdbbin/oscar-8.0.mysql"}, AURORA),
    "Cloud SQL": ({"version": "8.0.31-google", "version_comment": "(Google)"}, CLOUD_SQL),
    "Azure": ({"version": "8.0.42-azure", "version_comment": "Source distribution"}, AZURE),
    "Azure, MySQL 8.4": ({"version": "8.4.5-azure", "version_comment": "Source distribution"}, AZURE),
    "Debian": ({"version": "9.7.0-2", "version_comment": "(Debian)", "basedir": "/usr/"}, OWN),
    "MariaDB": ({"version": "11.4.5-MariaDB-log", "version_comment": "MariaDB Server"}, OWN),
}
# what a new user of each service is told first
METADATA = {
    OWN: "SET GLOBAL binlog_row_metadata = 'FULL'",
    RDS: "set binlog_row_metadata to FULL in the instance's DB parameter group",
    AURORA: "set binlog_row_metadata to FULL in the DB cluster parameter group",
    CLOUD_SQL: "set the instance's database flag binlog_row_metadata to FULL",
    AZURE: "set the server parameter binlog_row_metadata to FULL",
}
NO_LOG = {
    OWN: "start the server with it",
    RDS: "switch automated backups on",
    AURORA: "set binlog_format to ROW in the DB cluster parameter group",
    CLOUD_SQL: "switch point-in-time recovery on",
    AZURE: "use a flexible server",
}
VARIABLES = {service: variables for variables, service in REPORTED.values()}
SERVICES = tuple(VARIABLES)


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


def on(db: Db, service: Service, **variables: str) -> Server:
    """The server, as one of the service with these variables would report itself."""
    own = Server.of(db.connection)
    return Server(db.connection, {**own.variables, **VARIABLES[service], **variables}, ())


@contextmanager
def shown_hours(db: Db, value: str) -> Iterator[None]:
    """The procedure by which Amazon RDS shows how long it keeps binlog files."""
    columns = "'binlog retention hours' AS name, {} AS value, 'in hours' AS description"
    query(
        db.connection, f"CREATE PROCEDURE mysql.rds_show_configuration() READS SQL DATA SELECT {columns.format(value)}"
    )
    try:
        yield
    finally:
        query(db.connection, "DROP PROCEDURE mysql.rds_show_configuration")


@pytest.mark.parametrize("name", REPORTED)
def test_a_service_is_known_by_what_its_servers_report(name: str) -> None:
    """And a server that says nothing of a service is its owner's own."""
    variables, service = REPORTED[name]
    assert service_of(variables) is service
    assert service_of({key: value for key, value in variables.items() if key in RETENTION_VARIABLES}) is service


def test_nothing_at_all_is_no_service() -> None:
    """A server that shows none of these variables is not taken for one of a service."""
    assert service_of({}) is OWN


@pytest.mark.mysql
@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name or "own")
def test_a_fix_names_the_place_where_the_service_has_the_setting(db: Db, service: Service) -> None:
    """SET GLOBAL is denied on all of them, also to the administrator; it is named for the owner's own servers only."""
    spoilt = on(db, service, binlog_row_metadata="NO_LOG", binlog_row_value_options="PARTIAL_JSON", log_bin="OFF")
    found = {one.name: str(one.finding) for one in ask(spoilt, preflight.CONDITIONS)}
    note = preflight.row_metadata(spoilt)
    assert METADATA[service] in str(note.finding)
    assert not note.fatal
    assert preflight.row_metadata(on(db, service, binlog_row_metadata="FULL")).finding is None
    assert NO_LOG[service] in found["binary log"]
    found["metadata"] = str(note.finding)
    assert all("SET GLOBAL" not in finding for finding in found.values()) == (service is not OWN)
    unordered = str(preflight.commit_order(on(db, service, binlog_order_commits="OFF")))
    assert service.fix("binlog_order_commits", "ON") in unordered
    unsafe = str(preflight.synced_binlog(on(db, service, gtid_mode="OFF", sync_binlog="0")))
    assert service.fix("sync_binlog", "1") in unsafe


@pytest.mark.mysql
def test_a_server_without_gtids_is_not_called_ok(db: Db) -> None:
    """A note says what is missing, and what is not; a run may begin. A mode in between is a problem."""
    note = preflight.has_gtids(on(db, OWN, gtid_mode="OFF"))
    assert (note.name, note.fatal) == ("GTIDs", False)
    assert str(note.finding).startswith("gtid_mode is OFF: copies are exact, but")
    assert preflight.has_gtids(on(db, OWN, gtid_mode="ON")).finding is None
    modes = {mode: preflight.gtids(on(db, OWN, gtid_mode=mode)) for mode in ("ON", "OFF", "ON_PERMISSIVE")}
    assert modes == {"ON": None, "OFF": None, "ON_PERMISSIVE": modes["ON_PERMISSIVE"]}
    assert "finish the change" in str(modes["ON_PERMISSIVE"])
    assert "GTIDs" not in preflight.CONDITIONS


@pytest.mark.mysql
def test_a_reader_of_aurora_is_refused(db: Db) -> None:
    """It has no binlog. A replica of any other service may be read-only."""
    assert "use the cluster's endpoint" in str(preflight.aurora_writer(on(db, AURORA, innodb_read_only="ON")))
    assert preflight.aurora_writer(on(db, AURORA, innodb_read_only="OFF")) is None
    assert preflight.aurora_writer(on(db, RDS, innodb_read_only="ON")) is None


@pytest.mark.mysql
def test_only_aurora_is_called_unproven(db: Db) -> None:
    """Its storage is not InnoDB's; a run may begin nevertheless."""
    warned = [one for one in SERVICES if service(on(db, one)).finding]
    assert warned == [AURORA]
    assert not service(on(db, AURORA)).fatal


@pytest.mark.mysql
@pytest.mark.parametrize(
    ("kept", "finding"), [("NULL", "as soon as it can"), ("'23'", "after 23.0 hours"), ("'24'", "")]
)
def test_amazon_keeps_binlog_files_for_its_own_hours(db: Db, kept: str, finding: str) -> None:
    """The variable, 30 days by default, has no effect there: without hours RDS purges what it does not need itself."""
    with shown_hours(db, kept):
        found = retention(on(db, RDS, binlog_expire_logs_seconds="2592000"), 60.0)
    if not finding:
        assert found is None
    else:
        assert finding in str(found)
        assert str(found).endswith("CALL mysql.rds_set_configuration('binlog retention hours', 24)")


@pytest.mark.mysql
def test_amazon_is_not_asked_for_more_hours_than_it_takes(db: Db) -> None:
    """A week on RDS, 90 days on Aurora."""
    with shown_hours(db, "NULL"):
        for one, hours in ((RDS, 168), (AURORA, 2160)):
            assert str(retention(on(db, one), 1e9)).endswith(f"hours', {hours})")


@pytest.mark.mysql
def test_a_retention_that_the_user_may_not_see_is_a_warning_with_the_grant(db: Db) -> None:
    """The reader's user has no right to call procedures."""
    db.run("CREATE USER 'reader'@'%' IDENTIFIED BY 'p'", "GRANT REPLICATION CLIENT ON *.* TO 'reader'@'%'")
    reader = db.source.model_validate(
        {"host": db.source.host, "port": db.source.port, "user": "reader", "password": "p"}
    )
    try:
        with shown_hours(db, "'24'"), connect(reader) as connection:
            server = Server(connection, dict(on(db, RDS).variables), ())
            assert "GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration" in str(retention(server, 60.0))
            db.run("GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration TO 'reader'@'%'")
            assert retention(server, 60.0) is None
    finally:
        db.run("DROP USER 'reader'@'%'")


@pytest.mark.mysql
def test_only_a_denied_retention_is_unknown(db: Db) -> None:
    """A lost connection raises an error: without an answer, the source may keep its binlog for an hour only."""
    source = Source(db.source, db.connection)
    assert source.shown_retention_seconds() == source.retention_seconds()
    with connect(db.source) as connection:
        lost = Source(db.source, connection)
        [(session,)] = query(connection, "SELECT connection_id()")
        query(db.connection, f"KILL {session}")
        with pytest.raises(pymysql.err.Error):
            lost.shown_retention_seconds()


@pytest.mark.mysql
def test_azure_purges_files_at_once_where_others_keep_them_for_ever(db: Db) -> None:
    """0 seconds, the default on Azure, means there that a file goes as soon as the service itself does not need it."""
    never = {"binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}
    assert retention(on(db, OWN, **never), 60.0) is None
    found = str(retention(on(db, AZURE, **never), 60.0))
    assert "as soon as it can" in found
    assert found.endswith("set the server parameter binlog_expire_logs_seconds to 86400")
    assert retention(on(db, AZURE, binlog_expire_logs_seconds="86400"), 60.0) is None


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"wsrep_on": "ON", "wsrep_provider": "/usr/lib/libgalera_smm.so"}, "wsrep_on is ON"),
        ({"wsrep_provider": "/usr/lib64/galera4/libgalera_smm.so"}, "wsrep_provider is /usr/lib64"),  # Percona's
        ({"wsrep_on": "OFF", "wsrep_provider": "none"}, ""),
        ({}, ""),
    ],
)
def test_galera_is_known_by_its_variables(variables: Mapping[str, str], found: str, db: Db) -> None:
    """A MariaDB that could be a node, but is none, passes."""
    finding = preflight.galera(Server(db.connection, variables, ()))
    assert (finding is None) if not found else found in str(finding)


@pytest.fixture
def galera_node(tmp_path: Path) -> Iterator[LocalServer]:
    """A cluster of one node: MariaDB with the provider of Debian's package."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        pytest.skip("Galera comes from Debian's packages")
    fetched = subprocess.run([apt, "download", "galera-4"], cwd=tmp_path, capture_output=True, text=True, check=False)
    [package, *_] = [*tmp_path.glob("galera-4_*.deb"), None]
    if package is None:
        pytest.skip(f"Debian's galera-4 cannot be had: {fetched.stderr.strip()[-200:]}")
    subprocess.run([dpkg, "--extract", package, tmp_path / "galera"], check=True)
    with reserved_port(None) as port:
        pass  # the node binds it
    settings = {
        "wsrep_on": "ON",
        "wsrep_provider": str(tmp_path / "galera" / "usr" / "lib" / "galera" / "libgalera_smm.so"),
        "wsrep_cluster_address": "gcomm://",
        "wsrep_node_address": "127.0.0.1",
        "wsrep_provider_options": f"gmcast.listen_addr=tcp://127.0.0.1:{port}",
        "innodb_autoinc_lock_mode": "2",
    }
    with ExitStack() as running:
        try:
            node = local_server(tmp_path, settings, flavor=MARIADB_11_4, program=pinned.program(MARIADB_11_4))
            server = running.enter_context(node)
        except OperatorNeeded as error:
            pytest.skip(f"no node of Galera starts here: {error}")
        yield server


@pytest.mark.mysql
@pytest.mark.long("a cluster of Galera for one line")
def test_a_real_node_of_galera_is_refused_by_name(galera_node: LocalServer) -> None:
    """It says wsrep_on, and is refused for what it does to commits; the other conditions are checked too."""
    with connect(source_of(galera_node)) as connection:
        assert query(connection, "SHOW STATUS LIKE 'wsrep_cluster_size'") == [("wsrep_cluster_size", "1")]
        found = {one.name: one for one in ask(Server.of(connection), preflight.CONDITIONS)}
    assert found["no Galera"].fatal
    assert "node of Galera, which may lose transactions" in str(found["no Galera"].finding)
    assert found["binary log"].finding is None


def test_servers_without_a_service_pass_unchanged(mysql_server_with: Callable[..., LocalServer]) -> None:
    """A server of one's own has no finding that speaks of a service."""
    with connect(source_of(mysql_server_with())) as connection:
        assert Server.of(connection).service is OWN
