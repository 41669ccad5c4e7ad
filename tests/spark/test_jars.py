"""The jars of a session: who fetches them, and when they are taken from the disk."""

import hashlib
import re
import threading
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from lakeingest.config import FORMATS, Config
from lakeingest.config.catalog_kinds import POSTGRESQL_JAR
from lakeingest.config.storage import S3A_JARS
from lakeingest.config.stores import STORES
from lakeingest.config.target import FormatName
from lakeingest.errors import OperatorNeeded
from lakeingest.spark import jars
from lakeingest.spark.jars import assert_released, fetch, settings_with_jars
from lakeingest.spark.pins import SHA256
from lakeingest.spark.session import java_home
from lakeingest.spark.settings import settings


@pytest.fixture
def config(lake_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A pipeline whose user has no jars yet, and which names none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return lake_config.model_copy(update={"spark": lake_config.spark.model_copy(update={"conf": {}})})


def put(config: Config, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let all jars of a pipeline be there; as Spark's copies, which are answered, and as what Ivy fetched."""
    copies = []
    for jar in FORMATS[config.target.format].jars(config.target):
        monkeypatch.setitem(SHA256, jar, hashlib.sha256(b"whole").hexdigest())
        group, artifact, version = jar.split(":")
        name = f"{artifact}-{version}.jar"
        copies.append(home / ".ivy2" / "jars" / f"{group}_{name}")
        for file in (copies[-1], home / ".ivy2" / "cache" / group / artifact / "jars" / name):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"whole")
    return copies


def test_one_process_at_a_time_fetches_jars(config: Config) -> None:
    """The others wait until it has them: a jar that is half there was loaded, and its classes were missing."""
    entered, ours = threading.Event(), settings(config) | {"spark.jars": "/another.jar"}

    def enter() -> None:
        with settings_with_jars(config, ours):
            entered.set()

    with settings_with_jars(config, ours) as given:
        assert given == ours
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.5)
    other.join(10)
    assert entered.is_set()


def test_jars_that_are_here_are_named_by_their_paths(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits, and Ivy is not asked; one that is not whole is still being written, and waited for."""
    copies, ours = put(config, tmp_path, monkeypatch), settings(config)
    with settings_with_jars(config, ours) as given:
        assert not (tmp_path / ".ivy2" / "lakeingest.lock").exists()
        assert given == {
            **{key: value for key, value in ours.items() if key != "spark.jars.packages"},
            "spark.jars": ",".join(map(str, copies)),
        }
    copies[-1].write_bytes(b"who")
    more = ours | {"spark.jars": "/another.jar"}
    with settings_with_jars(config, more) as given:
        assert (tmp_path / ".ivy2" / "lakeingest.lock").exists()
        assert given == more


@pytest.mark.parametrize("key", ["spark.jars.packages", "spark.jars"])
def test_jars_that_a_pipeline_adds_are_left_to_spark(
    config: Config, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only it knows what they need."""
    put(config, tmp_path, monkeypatch)
    ours = {**settings(config), key: "org.example:more:1.0"}
    with settings_with_jars(config, ours) as given:
        assert given == ours


def test_jars_that_others_provide_are_no_concern_of_ours(config: Config) -> None:
    """Nothing is fetched, and nothing waited for."""
    provided = config.model_copy(update={"spark": config.spark.model_copy(update={"jars": "provided"})})
    with settings_with_jars(provided, settings(provided)) as given:
        assert given == settings(provided)
    assert not Path("~/.ivy2").expanduser().exists()


@pytest.mark.long("jobs of Spark")
def test_a_jar_is_used_only_as_it_was_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was changed is fetched anew; where the repository has another one, both digests are said.

    The jars of a module's sources and documents, which SQLite's has, are left out.
    """
    name = "org.postgresql:postgresql:42.7.8"
    folder = tmp_path / "ivy"
    jar = folder / "jars" / "org.postgresql_postgresql-42.7.8.jar"
    fetch(folder, [name, "org.xerial:sqlite-jdbc:3.50.3.0"], java_home())
    assert_released(name, jar)
    jar.write_bytes(jar.read_bytes()[:-1] + b"!")  # as long as before
    with pytest.raises(OperatorNeeded, match=r"is not org\.postgresql:postgresql:42\.7\.8 as it was released"):
        assert_released(name, jar)
    fetch(folder, [name], java_home())
    assert_released(name, jar)
    monkeypatch.setitem(SHA256, name, "0" * 64)
    with pytest.raises(OperatorNeeded, match=r"its SHA-256 is [0-9a-f]{64}, not 0{64}"):
        fetch(folder, [name], java_home())
    with pytest.raises(OperatorNeeded, match=r"Ivy cannot fetch org\.example:nothing:1"):
        fetch(folder, ["org.example:nothing:1"], java_home())


def test_a_fetch_that_hangs_is_an_error_with_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that answers no more must not end the run with a traceback."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setattr(jars, "_SECONDS", 0.2)
    with pytest.raises(OperatorNeeded, match=r"Ivy cannot fetch org\.example:nothing:1: it has not ended after 0\.2"):
        fetch(tmp_path / "ivy", ["org.example:nothing:1"], tmp_path)


@pytest.mark.parametrize("name", ["iceberg", "hudi"])
def test_each_jar_of_a_session_has_its_digest(name: FormatName) -> None:
    """Of every catalog and store, but of what no registry of the tests has."""
    unknown = {"org.apache.hudi:hudi-spark4.1-bundle_2.13:1.2.0", "org.apache.iceberg:iceberg-gcp-bundle:1.12.0"}
    jars = {*FORMATS[name].by_line.values(), POSTGRESQL_JAR, *S3A_JARS, *(store.jar for store in STORES.values())}
    assert {jar for jar in jars if jar not in SHA256} <= unknown


@pytest.mark.long("jobs of Spark")
def test_the_page_of_old_jars_names_what_is_there() -> None:
    """Each file of PySpark that it names is there, and each library in the jars that are here; no jar has Log4j 1."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "old-jars.md").read_text()
    own, fetched = Path(pyspark.__path__[0]) / "jars", Path("~/.ivy2/jars").expanduser()
    named = set(re.findall(r"`(\S+\.jar)`", page))
    of_spark = {name for name in named if not name.startswith(("org.", "com."))}
    assert len(of_spark) > 30
    assert of_spark <= {jar.name for jar in own.iterdir()}
    assert f"has {len(list(own.glob('*.jar')))} jars" in page
    for name, parts in re.findall(r"(?m)^\| `(\S+\.jar)` \| (\S+ \d[^|]*) \|", page):
        jar = (own if name in of_spark else fetched) / name
        if jar.exists():
            with ZipFile(jar) as file:
                poms = [file.read(one).decode() for one in file.namelist() if one.endswith("/pom.properties")]
            found = {frozenset(re.findall(r"(?m)^(?:artifactId|version)=(\S+)", pom)) for pom in poms}
            assert {frozenset(one.split()) for one in parts.split(", ")} <= found, name
    for jar in own.glob("*.jar"):
        with ZipFile(jar) as file:
            assert {"org/apache/log4j/net/SocketServer.class", "org/apache/log4j/net/JMSSink.class"}.isdisjoint(
                file.namelist()
            )
