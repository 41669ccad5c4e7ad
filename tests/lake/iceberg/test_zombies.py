"""Two writers on one Iceberg table, and answers that are lost: what lands where, and who finds out."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.errors import Retryable, StaleWriter
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.marks import BUILDING
from tests.faults.catalog_commits import at_commits
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark


def zombie_merge(raw: Raw) -> None:
    """What the MERGE of another Spark leaves: a commit on the tip of staging that has no progress."""
    ours = {"spark.app.id": "another"}
    with (
        raw(BUILDING).transaction() as transaction,
        transaction.update_snapshot(snapshot_properties=ours, branch=STAGING).fast_append(),
    ):
        pass


def before(target: Any, method: str, call: int, act: Callable[[], object]) -> None:
    """Let `act` happen before a call of a method of ours, the first being 1."""
    real, calls = getattr(target, method), iter(range(1, 100))

    def late(*arguments: object) -> object:
        if next(calls) == call:
            act()
        return real(*arguments)

    setattr(target, method, late)


@pytest.mark.parametrize("moment", [("_table", 2), ("_commit", 1), ("_finish", 1)])
def test_a_zombies_commit_during_our_merge_refuses_it(lake: Lake, raw: Raw, moment: tuple[str, int]) -> None:
    """Whenever it lands: we stop, it is taken back, and our changes merged again are there once."""
    staged = lake.copied((1, "a"))
    target = lake.open()
    before(target, *moment, lambda: zombie_merge(raw))
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.merge(staged, (2, "b", False), target=target)
    loaded = lake.loaded()
    assert loaded == replace(staged, version=loaded.version)
    assert lake.rows(lake.merge(loaded, (2, "b", False))) == [(1, "a"), (2, "b")]


@pytest.mark.long("takes seconds")
def test_a_zombies_merge_after_our_mark_is_never_published(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """We publish what we audited, without it; our next commit is refused, and the next load takes it back."""
    staged = lake.merge(lake.copied((1, "a")), (2, "b", False))
    spark.sql(f"INSERT INTO {'.'.join((CATALOG, *raw(BUILDING).name()))}.branch_{STAGING} VALUES (3, 'zombie')")
    published = lake.publish(staged)
    assert lake.seen() == [(1, "a"), (2, "b")]
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.merge(published, (4, "d", False), pos=30)
    loaded = lake.loaded()
    assert loaded == replace(published, progress=loaded.progress, version=loaded.version)
    assert lake.rows(loaded) == lake.seen()
    lake.publish(lake.merge(loaded, (4, "d", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b"), (4, "d")]


def test_a_wave_that_lands_while_a_merge_runs_refuses_the_merge(lake: Lake) -> None:
    """Its rows were not there when the merge looked for those that its changes replace."""
    staged = lake.wave(lake.created(), [(1, "a")], upper=(5,))
    target = lake.open()
    before(target, "_commit", 1, lambda: lake.wave(staged, [(5, "e")]))
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.merge(staged, (1, "zombie", False), target=target)
    assert lake.rows(lake.loaded()) == [(1, "a"), (5, "e")]


@contextmanager
def lost_answer(nth: int = 1) -> Iterator[None]:
    """The nth commit of the catalog is made, and whoever made it sees an error."""
    commits = iter(range(1, 100))

    def lose(_: sqlite3.Connection) -> None:
        if next(commits) == nth:
            raise sqlite3.OperationalError("disk I/O error")

    with at_commits(after=lose):
        yield
    assert next(commits) > nth, "no answer was lost"


@pytest.mark.long("takes seconds")
def test_a_commit_takes_effect_once_if_its_answer_is_lost(lake: Lake, raw: Raw) -> None:
    """It is looked up, not made twice: a wave, a mark, the reset of staging, a publish, the first one too."""
    made = lake.created()
    with lost_answer():
        staged = lake.wave(made, [(1, "a")])
    assert lake.loaded() == staged
    assert lake.rows(staged) == [(1, "a")]
    with lost_answer():
        staged = lake.merge(staged, (2, "b", False))
    assert lake.loaded() == staged
    zombie_merge(raw)
    with lost_answer():
        loaded = lake.loaded()
    assert loaded == replace(staged, version=loaded.version)
    assert lake.loaded() == loaded
    with lost_answer():
        published = lake.publish(loaded)
    assert lake.loaded().published == published.version
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.long("takes seconds")
def test_a_creation_a_drop_or_a_renaming_takes_effect_if_its_answer_is_lost(lake: Lake) -> None:
    """It is looked up as the commits are."""
    lake.created()
    with lost_answer():
        lake.open().discard(lake.table)
    assert lake.open().inspect(lake.table) is None
    with lost_answer():
        staged = lake.created()
    staged = lake.wave(staged, [(1, "a")])
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    with lost_answer(2):
        lake.publish(staged)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a")]


def test_a_failed_commit_is_reported_as_failed(lake: Lake) -> None:
    """The catalog is held by another process: nothing is committed, and the error says what to do."""
    staged = lake.copied((1, "a"))

    def fail(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database is locked")

    with at_commits(before=fail), pytest.raises(Retryable, match="held by another process"):
        lake.open().mark(staged, staged.progress)
    assert lake.loaded() == staged
