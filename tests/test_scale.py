"""The simulation of large runs: its bounds, with costs that are easy to reckon with."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scale import KEPT, Copy, Follow, Outcome, copy, draw, follow, main, over, waves
from benchmarks.scale_costs import CHUNK_ROWS, Costs, measure
from lakeingest.core.figures.bill import UNIT_COSTS, cpu_of_rows

FREE = Costs(
    row_bytes=200.0,
    plan=0.0,
    send=0.0,
    receive=0.0,
    note=0.0,
    create=0.0,
    commit=((1, 0.0), (400, 0.0)),
    publish=((1, 0.0), (400, 0.0)),
    again=0.0,
    late=((10, 0.0), (20, 0.0)),
    append=((1, 0.0), (10_000, 0.0)),
    idle=((1, 0.0), (10_000, 0.0)),
    find=0.0,
    copy_rss=((1, 100), (1_000_000, 500)),
    entry_rss=3,
)
CHUNK_BYTES = CHUNK_ROWS * 200


@pytest.mark.parametrize(("chunks", "sizes"), [(1, [1]), (100, [100]), (150, [100, 50]), (1_000, [100, 400, 400, 100])])
def test_waves_have_the_sizes_of_the_product(chunks: int, sizes: list[int]) -> None:
    """The first one has a chunk for each executor, the later ones four."""
    assert list(waves(chunks, 100)) == sizes


@pytest.mark.parametrize(("value", "cost"), [(1, 5.0), (2, 6.0), (3, 7.0), (5, 9.0), (0, 5.0)])
def test_costs_lie_on_a_line(value: float, cost: float) -> None:
    """Between the points, and beyond the last one."""
    assert over(((1, 5.0), (3, 7.0)), value) == pytest.approx(cost)


def test_costs_beyond_the_last_point_do_not_fall() -> None:
    """Nor do they rise where there is but one point."""
    assert over(((1, 5.0), (3, 4.0)), 10) == 4.0
    assert over(((1, 5.0),), 10) == 5.0


def test_a_small_budget_of_the_source_is_the_bound() -> None:
    """The copy takes its bytes ÷ its bytes a second, and a little more, as chunks differ."""
    run = Copy("x", tables=10, chunks=10_000, bytes_per_second=100 * CHUNK_BYTES / 10)
    done = copy(FREE, run)
    assert done.bound == "the source's bytes"
    assert 1_000 <= done.seconds < 1_400
    assert done.source == pytest.approx(1_000 / done.seconds)
    assert done.memory == pytest.approx(104, abs=1)


def test_connections_limit_how_many_chunks_are_read_at_once() -> None:
    """Two for each chunk, and two of the driver; then most executors are idle."""
    run = Copy("x", tables=1, chunks=4_000, connections=22, bytes_per_second=1e12)
    assert run.at_once == 10
    done = copy(FREE, run)
    assert 400 <= done.seconds / cpu_of_rows(CHUNK_ROWS) < 480
    assert done.executors < 0.1


def test_enough_of_everything_leaves_executors_as_the_bound() -> None:
    """They are busy but for the end of each wave."""
    done = copy(FREE, Copy("x", tables=1, chunks=40_000, bytes_per_second=1e12))
    assert done.bound == "executors"
    assert done.executors > 0.75


def test_a_driver_that_takes_long_for_tables_is_the_bound() -> None:
    """Each table is created, committed and published after the other; the spool's segments are looked through."""
    slow = replace(FREE, create=1.0, commit=((1, 2.0), (400, 2.0)), publish=((1, 3.0), (400, 3.0)), find=0.5)
    run = Copy("x", tables=200, chunks=400, bytes_per_second=1e12)
    done = copy(slow, run)
    assert done.bound == "the driver"
    assert done.seconds == pytest.approx(200 * (1 + 2 + 3 + 2), rel=0.05)
    segments = copy(slow, replace(run, segments=4))
    assert segments.seconds - done.seconds == pytest.approx(200 * 4 * 3 * 0.5)
    assert segments.memory - done.memory == 4 * 100 * 3


def test_a_commit_runs_beside_the_next_wave() -> None:
    """Only the last commit of a table adds to the time, and commits grow with the table."""
    run = Copy("x", tables=1, chunks=900, bytes_per_second=1e12)
    quick = copy(FREE, run).seconds
    committing = copy(replace(FREE, commit=((1, 0.1), (400, 0.1))), run)
    assert committing.seconds == pytest.approx(quick + 2 * 0.1)  # of the last wave, and the merge before the publish
    growing = copy(replace(FREE, late=((0, 0.0), (2, 200.0))), run)
    assert growing.seconds > 200


def test_a_round_takes_what_its_tables_take() -> None:
    """Changes of many tables wait for the driver, changes of one for executors; too many are never caught up with."""
    costs = replace(FREE, again=0.2)
    many = follow(costs, Follow("x", changed=10_000))
    one = follow(costs, Follow("x", changed=1))
    share = 2 * 50_000 * UNIT_COSTS.changes / 1e6 / 100
    assert one.executors == pytest.approx(share)
    assert one.seconds == pytest.approx(0.2 / (1 - share))
    assert many.seconds == pytest.approx(10_000 * one.seconds)
    assert many.bound == "the driver"
    assert many.longest == pytest.approx(3 * many.seconds)
    assert follow(costs, Follow("x", changed=1, executors=1, changes_per_second=1e6)) == Outcome(
        "x", float("inf"), 0.0, 1.0, 1.0, 0
    )


def test_the_kept_costs_are_within_the_targets() -> None:
    """A chunk and a change file take the driver at most 0.2 ms."""
    costs = Costs.from_json(json.loads(KEPT.read_text())["costs"])
    assert costs.chunk <= 0.0002
    count, seconds = costs.append[-1]
    assert seconds / count <= 0.0002


@pytest.mark.long("draws, which imports much")
def test_tables_and_picture_are_made_from_the_kept_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command, without a measurement."""
    main(["--plot", str(tmp_path / "scale.png")])
    assert "11 TB in 1,000,000 chunks" in capsys.readouterr().out
    assert (tmp_path / "scale.png").stat().st_size > 10_000


@pytest.mark.long("measures for half a minute")
def test_costs_are_measured_by_the_product(tmp_path: Path) -> None:
    """Each of them takes time; a document of them is read again."""
    costs = measure(tmp_path, chunks=2_000, waves=4, files=(1, 2))
    assert all(value > 0 for name, value in costs.to_json().items() if isinstance(value, int | float))
    assert Costs.from_json(json.loads(json.dumps(costs.to_json()))) == costs
    draw(costs, tmp_path / "scale.png")
