"""Pipelines that race for a copy: never two owners, and every row once."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier

import pytest

from lakeingest.config import Config
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, NotOurCopy, StaleWriter, UsageError
from lakeingest.files.local import Local
from lakeingest.lake.hudi.adoptions import HudiAdoptions
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.iceberg.foreign.adoptions import IcebergAdoptions
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.ownership import Adoptions, Ownership, hand_over
from tests.lake.steps import Lake, Row

pytestmark = [pytest.mark.spark, pytest.mark.formats]

RACES = int(os.environ.get("LAKEINGEST_RACES", "3"))


@pytest.fixture(name="config")
def _config(lake_config: Config) -> Config:
    """The lake that they race on; a file that imports these tests has another one of this name."""
    return lake_config


@pytest.fixture
def pipelines(config: Config, lake_of: Callable[..., Lake], tmp_path: Local) -> Callable[[], list[Lake]]:
    """Call it for a table of two pipelines, which are called alike."""

    def make() -> list[Lake]:
        lake = lake_of()

        def of(number: int) -> Lake:
            owned = Ownership(lambda: owner(number), lambda _: True)
            if config.target.format == "hudi":
                staging = tmp_path / str(number)
                return replace(
                    lake,
                    open=lambda: HudiTarget(config.target, staging, ownership=owned, open_spark=lambda: lake.spark),
                )
            return replace(
                lake, open=lambda: IcebergTarget(config.target, ownership=owned, open_spark=lambda: lake.spark)
            )

        return [of(number) for number in range(2)]

    return make


def owner(number: int) -> Owner:
    """One of the pipelines."""
    return Owner("shop", str(number), f"file://host/{number}")


def adoptions(config: Config, tmp_path: Local, number: int) -> Adoptions:
    """The adoptions of one of the pipelines."""
    if config.target.format == "hudi":
        return HudiAdoptions(HudiTarget(config.target, tmp_path / str(number)), owner(number))
    return IcebergAdoptions(IcebergTarget(config.target), owner(number))


def owned_by(config: Config, tmp_path: Local, table: TableId) -> int:
    """The number of the pipeline that the copy names."""
    found = adoptions(config, tmp_path, 0).owner(table)
    assert found is not None
    return int(found.id)


def handed_over(config: Config, tmp_path: Local, table: TableId) -> LakeIngestError | None:
    """Hand the copy over to the second pipeline; what it is told."""
    try:
        adoptions(config, tmp_path, 1).adopt(table)
    except LakeIngestError as error:
        return error
    return None


def at_once(lakes: list[Lake], work: Callable[[Lake], object]) -> list[LakeIngestError | None]:
    """What each of the pipelines is told, which do this at the same time."""
    start = Barrier(len(lakes))

    def told(lake: Lake) -> LakeIngestError | None:
        lake.open()
        start.wait()
        try:
            work(lake)
        except LakeIngestError as error:
            return error
        return None

    with ThreadPoolExecutor(len(lakes)) as pool:
        return list(pool.map(told, lakes))


def go_on(lake: Lake, *rows: Row) -> None:
    """Make the first copy of these rows, or go on with the one that was begun."""
    staged = lake.open().recover(lake.table) or lake.created()
    if not staged.progress.splits.complete:
        staged = lake.wave(staged, rows)
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))


def test_of_first_copies_at_once_one_is_made(
    pipelines: Callable[[], list[Lake]], config: Config, tmp_path: Local
) -> None:
    """Up to its publish; who lost is refused by name when it comes again."""
    for _ in range(RACES):
        lakes = pipelines()
        told = at_once(lakes, lambda lake: lake.published((1, "a"), (2, "b")))
        assert all(isinstance(error, NotOurCopy | StaleWriter) for error in told if error), told
        winners = [number for number, error in enumerate(told) if error is None]
        assert len(winners) <= 1, told
        if not winners:  # each saw that the other one had begun; one may have left its first copy
            winners = [0]
            with suppress(UsageError):  # there is none
                winners = [owned_by(config, tmp_path, lakes[0].table)]
            go_on(lakes[winners[0]], (1, "a"), (2, "b"))
        [winner] = winners
        assert owned_by(config, tmp_path, lakes[0].table) == winner
        with pytest.raises(NotOurCopy, match="belongs to the pipeline shop"):
            lakes[1 - winner].open().recover(lakes[0].table)
        assert lakes[0].seen() == [(1, "a"), (2, "b")]


def test_what_has_no_copy_cannot_be_handed_over(
    pipelines: Callable[[], list[Lake]], config: Config, tmp_path: Local
) -> None:
    """The command says so before it changes another table; a first copy that has begun can be."""
    first, second = pipelines()
    with pytest.raises(UsageError, match="has no copy; a run makes one"):
        adoptions(config, tmp_path, 1).owner(first.table)
    first.created()
    adoptions(config, tmp_path, 1).adopt(first.table)
    assert owned_by(config, tmp_path, second.table) == 1


@pytest.mark.parametrize(("name", "said"), [("shop", "--from shop a.b"), ("x; rm -rf ~", "--from 'x; rm -rf ~' a.b")])
def test_the_command_that_is_proposed_is_safe_to_paste(name: str, said: str) -> None:
    """Whoever may write to the lake can write the name of an owner."""
    assert hand_over(TableId("a", "b"), Owner(name, "1", "s")) == f"`lakeingest adopt {said}`"


@pytest.mark.long("rounds of a race between processes")
def test_of_a_publish_and_a_hand_over_at_once_both_leave_one_owner(
    pipelines: Callable[[], list[Lake]], config: Config, tmp_path: Local
) -> None:
    """Whichever comes first: the next owner goes on from what readers see, or from what was staged.

    The hand-over has a process of its own, because the lock of a folder keeps processes apart, not threads. In a store
    Hudi has no lock: there the publish may come last, and then the copy is handed over again.
    """
    has_no_lock = config.target.format == "hudi" and config.target.warehouse.scheme is not None
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere:
        elsewhere.submit(handed_over, config, tmp_path, TableId("contract", "none")).exception()  # it has imported all
        for _ in range(RACES):
            first, second = pipelines()
            published = first.published((1, "a"), (2, "b"))
            staged = first.merge(published, (1, "A", False), (3, "c", False), pos=30)
            hand_over = elsewhere.submit(handed_over, config, tmp_path, second.table)
            [told] = at_once([first], lambda lake, staged=staged: lake.publish(staged))  # type: ignore[misc]
            assert told is None or isinstance(told, NotOurCopy | StaleWriter)
            failed = hand_over.result()
            assert failed is None or isinstance(failed, StaleWriter)
            if failed is not None or (has_no_lock and owned_by(config, tmp_path, second.table) == 0):
                adoptions(config, tmp_path, 1).adopt(second.table)
            assert owned_by(config, tmp_path, second.table) == 1
            with pytest.raises(NotOurCopy):
                first.open().recover(first.table)
            loaded = second.loaded()
            assert second.seen() == ([(1, "A"), (2, "b"), (3, "c")] if told is None else [(1, "a"), (2, "b")])
            again = second.merge(loaded, (1, "A", False), (3, "c", False), (2, None, True), pos=40)
            second.publish(again)
            assert second.seen() == [(1, "A"), (3, "c")]
