"""A real Hive metastore on this machine: the jars are those that PySpark brings, its database is Derby's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakeingest.demo.rest_catalog import _java
from lakeingest.demo.server import HOST, await_start, child, reserved_port

START_SECONDS = 120.0
LOCK_SECONDS = 15  # after which the lock of a client that has vanished is void; 300 by default
_SITE = """<configuration>{properties}</configuration>"""
_PROPERTY = "<property><name>{}</name><value>{}</value></property>"


@contextmanager
def hive_server(folder: Path) -> Iterator[str]:
    """The URI of a metastore without tables; its files are in the folder."""
    import pyspark

    database = f"jdbc:derby:;databaseName={folder / 'metastore'}"
    site = {
        "javax.jdo.option.ConnectionURL": f"{database};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": (folder / "hive").as_uri(),
        "hive.async.log.enabled": "false",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.txn.timeout": f"{LOCK_SECONDS}s",
        "hive.support.concurrency": "true",
        # starts the service that removes such locks
        "hive.compactor.initiator.on": "true",
        "hive.timedout.txn.reaper.start": "1s",
        "hive.timedout.txn.reaper.interval": "3s",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hive-site.xml").write_text(_SITE.format(properties="".join(map(_PROPERTY.format, site, site.values()))))
    _make_tables_of_locks(folder, database)
    opens = [f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in ("net", "lang")]
    jars = Path(pyspark.__path__[0]) / "jars"
    with reserved_port(None) as port:
        command = [_java(), "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *opens]
        command += [f"-Dderby.stream.error.file={folder / 'derby.log'}", "-cp", f"{folder}:{jars}/*"]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        log = folder / "metastore.log"
        with child(command, log) as process:
            uri = f"thrift://{HOST}:{port}"
            await_start(process, log, lambda: _ask(uri), START_SECONDS)
            yield uri


def _ask(uri: str) -> None:
    from pyiceberg.catalog.hive import HiveCatalog

    HiveCatalog("asked", uri=uri).list_namespaces()


def _make_tables_of_locks(folder: Path, database: str) -> None:
    """Nothing else makes them; in its test mode, where it does, the metastore refuses PyIceberg's locks."""
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        jvm = gateway.jvm
        jvm.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
        settings = jvm.org.apache.hadoop.hive.conf.HiveConf()
        settings.set("javax.jdo.option.ConnectionURL", f"{database};create=true")
        settings.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver")
        jvm.org.apache.hadoop.hive.metastore.txn.TxnDbUtil.prepDb(settings)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # then the JVM ends, and with it Derby's hold of the database
        gateway.proc.wait()
