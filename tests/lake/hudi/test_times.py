"""Clocks that are wrong: no commit is behind another one, whether lakeingest or Hudi writes it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakeingest.config import Config, History
from lakeingest.errors import ClockBehind
from lakeingest.files.file import File
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi import commit
from lakeingest.lake.hudi.options import most_commits
from lakeingest.lake.hudi.timeline import writes
from tests.faults.clocks import clock_ahead
from tests.lake.hudi.test_row_delta import folder
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]
DAY = timedelta(days=1)


@pytest.fixture
def having(lake: Lake, lake_config: Config) -> Callable[..., Lake]:
    """A function that opens the table with other settings of its target."""

    def opened(**settings: Any) -> Lake:
        config = lake_config.model_copy(update={"target": lake_config.target.model_copy(update=settings)})
        return replace(lake, settings=config.target, open=lambda: open_target(config, lambda: lake.spark))

    return opened


def test_commits_that_begin_in_one_millisecond_have_different_instants(
    any_folder: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store, no lock keeps a hand-over to another pipeline from beginning when a publish does."""
    times = iter(["20261201093539965", "20261201093539965", "20261201093539965", "20261201093539966"])
    monkeypatch.setattr(commit, "next_moment", lambda _: next(times))
    (any_folder / ".hoodie" / "timeline").make_folder()
    begun = [commit.Commit.begin(any_folder).instant for _ in range(2)]
    assert begun == ["20261201093539965", "20261201093539966"]
    assert len(any_folder.tree()) == 4  # each has its request, and that it is in flight


def change(lake: Lake, number: int) -> None:
    """One more publish, by a process of its own."""
    lake.publish(lake.merge(lake.loaded(), (number, f"v{number}", False), pos=30 + number))


def made_ahead(lake: Lake) -> None:
    """A table whose last commit is a day ahead of the clock of Spark, and of this process from now on."""
    lake.published((0, "a"))
    with clock_ahead(DAY):
        change(lake, 1)


@pytest.mark.long("publishes of Hudi")
def test_no_commit_is_behind_the_last_one(having: Callable[..., Lake]) -> None:
    """Hudi would clean and archive with commits of its own: that waits until the clock is right again."""
    lake = having(history=History(least=1))
    made_ahead(lake)
    for number in range(2, most_commits(1) + 4):
        change(lake, number)
        assert lake.seen() == lake.rows(lake.loaded())
    assert len(lake.seen()) == most_commits(1) + 4
    times = [(begun, completed) for completed, begun, _ in sorted(writes(folder(lake)))]
    assert times == sorted(times)


def test_maintenance_waits_for_the_clock(having: Callable[..., Lake]) -> None:
    """It has nothing to do meanwhile: only Hudi itself can clean."""
    lake = having()
    made_ahead(lake)
    staged = lake.loaded()
    assert lake.open().maintain(staged) == staged
    assert lake.seen() == [(0, "a"), (1, "v1")]


def test_a_publish_that_only_hudi_can_write_names_the_clock(having: Callable[..., Lake]) -> None:
    """Readers see nothing of it, and the next run publishes it once the clock is right."""
    lake = having(merge="statement")
    made_ahead(having())
    before = lake.seen()
    with pytest.raises(ClockBehind, match=r"this machine's clock is 2\d\.\d hours behind the last commit of"):
        change(lake, 2)
    assert lake.seen() == before
    change(having(), 3)
    assert lake.seen() == [(0, "a"), (1, "v1"), (2, "v2"), (3, "v3")]


@pytest.mark.long("waits for a clock, and publishes three times")
def test_a_small_difference_is_waited_for(having: Callable[..., Lake]) -> None:
    """The clocks of two machines differ by seconds."""
    lake = having(merge="statement")
    having().published((0, "a"))
    with clock_ahead(timedelta(seconds=5)):
        change(having(), 1)
    change(lake, 2)
    assert lake.seen() == [(0, "a"), (1, "v1"), (2, "v2")]
