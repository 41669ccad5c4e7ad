"""A real REST catalog on this machine, for the demo and the tests: the reference server of Iceberg's REST protocol.

Ivy, which is part of PySpark, fetches the server's jars from Maven Central. The jars are compared with their released
digests, and cached.
"""

import hashlib
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeingest.demo.debian import assert_private, caches, locked
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.jars import digest, retrieve
from lakeingest.spark.session import java_home

_START_SECONDS = 60.0
_ICEBERG = "1.12.0"
_FIXTURES = "1.11.0"  # the last version of Iceberg whose test fixtures contain the reference server
_MODULES = (
    ("org.apache.iceberg", "iceberg-core", _ICEBERG),
    ("org.apache.iceberg", "iceberg-aws", _ICEBERG),
    ("org.apache.iceberg", "iceberg-aws-bundle", _ICEBERG),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.14"),
    ("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.14"),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.14"),
    ("org.apache.hadoop", "hadoop-client-api", "3.3.4"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.3.4"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
# The output of `sha256sum *.jar | awk '{print $2, $1}' | LC_ALL=C sort | sha256sum` in the folder of all jars
_SHA256 = "27ec27b022c55f118d40e8089188fc44e504728ed2672e37390365958204d9a8"
_CLASSIFIED = (("iceberg-core", "tests"), ("iceberg-open-api", "test-fixtures"))
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="tests" module="{name}"/><configurations><conf name="default"/></configurations>
<dependencies defaultconfmapping="default->master,runtime(*),compile(*)">{dependencies}</dependencies></ivy-module>"""


@contextmanager
def local_rest_catalog(
    folder: Path, port: int | None = None, store: LocalS3 | None = None, say: Callable[[str], None] = lambda _: None
) -> Iterator[str]:
    """Run a REST catalog within the block, on `port` or any free port, and give its URI.

    The catalog is stored in `folder`. Its tables are in the object store `store` or, without `store`, in `folder`, too.
    Raises OperatorNeeded if the jars cannot be fetched, or if the server does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jars = _jar_folder(folder, say)
    with reserved_port(port) as chosen:
        settings = {
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'rest.db'}",
            "CATALOG_WAREHOUSE": (folder / "rest").as_uri() if store is None else f"s3://{store.bucket}/rest",
            "CATALOG_REST_PORT": str(chosen),
            "REST_PORT": str(chosen),
        }
        if store is not None:
            settings |= {
                **store.environment,
                "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
                "CATALOG_S3_ENDPOINT": store.endpoint,
                "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            }
        java = [_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        command = [*java, "org.apache.iceberg.rest.RESTCatalogServer"]
        log = folder / "rest.log"
        with child(command, log, environment=settings) as process:
            uri = f"http://{HOST}:{chosen}"
            await_start(process, log, lambda: _assert_answers(uri), _START_SECONDS)
            yield uri


def _assert_answers(uri: str) -> None:
    """Raise an error if the server does not answer."""
    urllib.request.urlopen(f"{uri}/v1/config", timeout=5).close()  # noqa: S310 - of this machine


def _java() -> str:
    """The path of the program java: that of `java_home`, or else the one on PATH."""
    home = java_home()
    return str(home / "bin" / "java") if home else str(shutil.which("java"))


def _jar_folder(folder: Path, say: Callable[[str], None]) -> Path:
    """The folder in the cache with the jars of the REST server. If it is missing, the jars are fetched.

    The jars are fetched into a partial folder, which is renamed at the end. So the returned folder is always complete.
    """
    [cache, *_] = caches(folder)  # the preferred cache
    assert_private(cache)
    place = cache / f"iceberg-rest-s3-{_ICEBERG}"
    with locked(cache / "iceberg-rest.lock"):
        if not place.exists():
            say("fetching the jars of a REST catalog (once)")
            partial = place.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            modules = [f'<dependency org="{org}" name="{name}" rev="{rev}"/>' for org, name, rev in _MODULES]
            # jars with a classifier, such as `tests`, without the jars on which they depend
            classified = [
                f'<dependency org="org.apache.iceberg" name="{name}" rev="{_FIXTURES}" transitive="false">'
                f'<artifact name="{name}" type="jar" ext="jar" m:classifier="{kind}"/></dependency>'
                for name, kind in _CLASSIFIED
            ]
            for number, dependencies in enumerate((modules, classified)):  # two modules of Ivy, with two names
                _fetch(f"rest{number}", dependencies, folder / "ivy", partial)
            assert_released(partial)
            partial.rename(place)
    return place


def assert_released(jars: Path) -> None:
    """Raise OperatorNeeded if the jars in this folder do not have the released digests."""
    listing = "".join(f"{jar.name} {digest(jar)}\n" for jar in sorted(jars.iterdir()))
    sha256 = hashlib.sha256(listing.encode()).hexdigest()
    if sha256 != _SHA256:
        raise OperatorNeeded(
            f"the jars of the REST catalog are not those that were released: the SHA-256 of their list is {sha256}, not"
            f" {_SHA256}; find out who changed the repository that they come from"
        )


def _fetch(name: str, dependencies: list[str], cache: Path, into: Path) -> None:
    """Fetch jars into the folder `into`: the `dependencies` in Ivy's XML, and everything on which they depend.

    `name` is the name of the Ivy module, and `cache` a folder for Ivy's files. Raises OperatorNeeded if Ivy fails.
    """
    module = _IVY.format(name=name, dependencies="".join(dependencies))
    has_all, reason = retrieve(module, cache, str(into / "[artifact]-[revision](-[classifier]).[ext]"), java_home())
    if not has_all:
        raise OperatorNeeded(f"the jars of the REST catalog cannot be fetched: {reason}")
