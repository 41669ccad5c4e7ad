"""Commits that also remove old snapshots take effect once, whatever is answered, and what is left can be read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Target as Settings
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.commits import commit
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.iceberg.tables.history import MAIN
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Staged, Target
from tests.lake.iceberg.test_commit import rows_of, table_of
from tests.lake.steps import PLAIN, Lake
from tests.lake.unreliable import ANSWERS, FAULTS, Fault, behind

ROWS = [(1, "a"), (2, "n2"), (3, "n3"), (4, "n4")]
STEPS: dict[str, Callable[[Lake, Staged, Target], Staged]] = {
    "merge": lambda lake, staged, target: lake.merge(staged, (9, "z", False), pos=90, target=target),
    "mark": lambda lake, staged, target: target.mark(staged, lake.leveled(staged, 90)),
    "maintain": lambda _, staged, target: target.maintain(staged),
    "start over": lambda lake, staged, target: lake.started_over(staged, target),
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table that keeps only its last published commit; each commit removes what is due."""
    monkeypatch.setattr(commit, "PAUSES", (0.0,) * len(commit.PAUSES))
    monkeypatch.setattr(expiry, "WORTH", 1)
    settings = Settings.model_validate({"warehouse": tmp_path, "history": {"keep": "0s", "least": 1, "readers": "0s"}})
    schema = TableSchema(TableId("shop", "orders"), PLAIN, ("id",))
    made = Lake(
        settings, lambda: IcebergTarget(settings, waiting=waiting(made)), cast("SparkSession", None), schema, {}
    )
    return made


def waiting(lake: Lake) -> Local:
    """The folder of removals that wait."""
    return Local(lake.settings.warehouse.path / "waiting")


def aged(lake: Lake) -> Staged:
    """A table of several publishes, of which the next commit removes all but the last."""
    patient = replace(
        lake, open=lambda: IcebergTarget(lake.settings.model_copy(update={"history": config.Target().history}))
    )
    staged = patient.published((1, "a"))
    for number in (2, 3, 4):
        staged = patient.publish(patient.merge(staged, (number, f"n{number}", False), pos=20 + number))
    return staged


def assert_whole(lake: Lake) -> None:
    """Every snapshot that is left can be read."""
    table = table_of(lake)
    for one in table.metadata.snapshots:
        table.scan(snapshot_id=one.snapshot_id).to_arrow()


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("each wrong answer at one step in turn", turn="name")
def test_a_removal_is_done_once_whatever_is_answered(lake: Lake, name: str, fault: str) -> None:
    """With the commit that it is part of."""
    staged = aged(lake)
    before = {one.snapshot_id for one in table_of(lake).metadata.snapshots}
    target, catalog = behind(lake.settings, FAULTS[fault], waiting(lake))
    answer = STEPS[name](lake, staged, target)
    assert not catalog.plan
    catalog.deliver()
    assert catalog.taken <= 1
    after = {one.snapshot_id for one in table_of(lake).metadata.snapshots}
    assert len(before - after) >= 3
    assert len(after - before) == 1
    assert rows_of(lake, MAIN) == ROWS
    assert_whole(lake)
    found: Any = lake.open().recover(lake.table)
    assert (found.version, found.published) == (answer.version, answer.published)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("arrives", [0, 1], ids=["not done", "done"])
@pytest.mark.long("each step in one way in turn", turn="arrives")
def test_a_removal_without_an_answer_does_not_disturb_its_successor(lake: Lake, name: str, arrives: int) -> None:
    """The successor removes the same snapshots; a copy that is late changes nothing."""
    staged = aged(lake)

    def take_over() -> None:
        found = lake.loaded()
        lake.publish(lake.merge(found, (5, "next", False), pos=95))

    fault = Fault(arrives, ANSWERS["504"], late=1, late_by=99, meanwhile=take_over)
    target, catalog = behind(lake.settings, [fault], waiting(lake))
    if arrives:
        STEPS[name](lake, staged, target)
    else:
        with pytest.raises(StaleWriter):
            STEPS[name](lake, staged, target)
    found = lake.loaded()
    catalog.deliver()
    assert catalog.taken == 0
    assert lake.loaded() == found
    assert_whole(lake)
    if name == "mark" or not arrives:
        assert rows_of(lake, MAIN) == [*ROWS, (5, "next")]
