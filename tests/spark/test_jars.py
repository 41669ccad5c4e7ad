"""The jars of a session: who fetches them, and when they are taken from the disk."""

import threading
from pathlib import Path

import pytest

from lakeingest.config import FORMATS, Config
from lakeingest.spark.jars import fetched
from lakeingest.spark.settings import settings


@pytest.fixture
def config(lake_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A pipeline whose user has no jars yet, and which names none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return lake_config.model_copy(update={"spark": lake_config.spark.model_copy(update={"conf": {}})})


def fetch(config: Config, home: Path) -> list[Path]:
    """Let all jars of a pipeline be there; as Spark's copies, which are answered, and as what Ivy fetched."""
    copies = []
    for jar in FORMATS[config.target.format].jars(config.target):
        group, artifact, version = jar.split(":")
        name = f"{artifact}-{version}.jar"
        copies.append(home / ".ivy2" / "jars" / f"{group}_{name}")
        for file in (copies[-1], home / ".ivy2" / "cache" / group / artifact / "jars" / name):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"whole")
    return copies


def test_one_process_at_a_time_fetches_jars(config: Config) -> None:
    """The others wait until it has them: a jar that is half there was loaded, and its classes were missing."""
    entered, ours = threading.Event(), settings(config)

    def enter() -> None:
        with fetched(config, ours):
            entered.set()

    with fetched(config, ours) as given:
        assert given == ours
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.5)
    other.join(10)
    assert entered.is_set()


def test_jars_that_are_here_are_named_by_their_paths(config: Config, tmp_path: Path) -> None:
    """Nobody waits, and Ivy is not asked; a shorter copy is still being written, and waited for."""
    copies, ours = fetch(config, tmp_path), settings(config)
    with fetched(config, ours) as given:
        assert not (tmp_path / ".ivy2" / "lakeingest.lock").exists()
        assert given == {
            **{key: value for key, value in ours.items() if key != "spark.jars.packages"},
            "spark.jars": ",".join(map(str, copies)),
        }
    copies[-1].write_bytes(b"who")
    with fetched(config, ours) as given:
        assert (tmp_path / ".ivy2" / "lakeingest.lock").exists()
        assert given == ours


@pytest.mark.parametrize("key", ["spark.jars.packages", "spark.jars"])
def test_jars_that_a_pipeline_adds_are_left_to_spark(config: Config, tmp_path: Path, key: str) -> None:
    """Only it knows what they need."""
    fetch(config, tmp_path)
    ours = {**settings(config), key: "org.example:more:1.0"}
    with fetched(config, ours) as given:
        assert given == ours


def test_jars_that_others_provide_are_no_concern_of_ours(config: Config) -> None:
    """Nothing is fetched, and nothing waited for."""
    provided = config.model_copy(update={"spark": config.spark.model_copy(update={"jars": "provided"})})
    with fetched(provided, settings(provided)) as given:
        assert given == settings(provided)
    assert not Path("~/.ivy2").expanduser().exists()
