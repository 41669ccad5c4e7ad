"""Simulates runs that need more machines than we have. It needs no MySQL: `python -m benchmarks.scale`.

The simulation steps through waves, tables and rounds in the order in which the product takes them. What the driver does
in each step was measured with the product's own code (`benchmarks.scale_costs`); what executors do was measured in runs
on real servers (`UNIT_COSTS`). An executor has one core. The source gives so many bytes a second to all connections
together, and lets so many connect. The network and the store cost nothing, and no task fails.
"""

import argparse
import heapq
import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.scale_costs import AT_ONCE, CHUNK_ROWS, Costs, measure
from lakeingest.core.figures.bill import UNIT_COSTS, cpu_of_rows
from lakeingest.pipeline.copying.planner import CHUNKS_PER_SLOT
from lakeingest.pipeline.run.executors import CHUNK_CONNECTIONS, DRIVER_CONNECTIONS

KEPT = Path(__file__).with_name("measured") / "scale.json"
PICTURE = KEPT.with_suffix(".png")
GB = 1e9
_ROUNDS_PAUSED = 2  # a round, and a pause that is as long (`target.publish_every: auto`)
_SPREAD = 0.2  # of the seconds of chunks: the standard deviation of their logarithm
_MOSTLY = 0.5
_ALIKE = 100  # so many tables are simulated; the others are like them


@dataclass(frozen=True, slots=True)
class Copy:
    """A first copy: tables of so many chunks in all, and what there is to copy them with."""

    name: str
    tables: int = 10_000
    chunks: int = 1_000_000
    executors: int = AT_ONCE
    connections: int = CHUNK_CONNECTIONS * AT_ONCE + DRIVER_CONNECTIONS
    bytes_per_second: float = 1.25 * GB
    segments: int = 0  # of the binlog that the spool has in the end
    changed: int = 100  # tables with changes in each of them

    @property
    def at_once(self) -> int:
        """How many chunks are read at a time."""
        return max(1, min(self.executors, (self.connections - DRIVER_CONNECTIONS) // CHUNK_CONNECTIONS))


@dataclass(frozen=True, slots=True)
class Follow:
    """Following a source: so many tables change evenly, and so many are watched."""

    name: str
    changed: int
    watched: int = 10_000
    changes_per_second: float = 50_000
    executors: int = AT_ONCE


@dataclass(frozen=True, slots=True)
class Outcome:
    """The seconds of a simulated run or round, how busy each part was (0 to 1), and the driver's bytes of memory."""

    name: str
    seconds: float
    source: float
    executors: float
    driver: float
    memory: int
    longest: float = 0.0  # of a change, until readers see it

    @property
    def bound(self) -> str:
        """The part that was busy more than half of the time; else they wait for each other."""
        shares = {"the source's bytes": self.source, "executors": self.executors, "the driver": self.driver}
        part = max(shares, key=lambda name: shares[name])
        return part if shares[part] > _MOSTLY else "turns: one table after the other"


def copy(costs: Costs, run: Copy) -> Outcome:
    """Copy table by table and wave by wave; a wave is committed while the next one is read; then publish each table."""
    alike = min(run.tables, _ALIKE)
    chunks, times = run.chunks // run.tables, run.tables / alike
    chance = np.random.default_rng(1)
    total = driver = reading = 0.0
    for _ in range(alike):
        now, busy, in_slots = _table(costs, run, chunks, chance)
        total, driver, reading = total + now, driver + busy, reading + in_slots
    at_end = over(costs.publish, chunks) + over(costs.commit, 1) + costs.find * run.segments * _FINDS
    seconds, driver = (total + alike * at_end) * times, (driver + alike * at_end) * times
    return Outcome(
        run.name,
        seconds,
        source=run.chunks * CHUNK_ROWS * costs.row_bytes / run.bytes_per_second / seconds,
        executors=reading * times / run.executors / seconds,
        driver=driver / seconds,
        memory=int(over(costs.copy_rss, run.chunks) + run.segments * run.changed * costs.entry_rss),
    )


_FINDS = 3  # a merge looks three times through the segments: for files, backlog and NULLs


def _table(costs: Costs, run: Copy, chunks: int, chance: np.random.Generator) -> tuple[float, float, float]:
    """The seconds of a table's copy, those of the driver in it, and those of all chunks together."""
    now = driver = costs.create
    in_slots = 0.0
    commit = 0.0  # of the wave before
    waves_before, seconds = np.array(costs.late).T
    growth = max(0.0, float(np.polyfit(waves_before, seconds, 1)[0]))  # of a commit, with each wave before
    for number, count in enumerate(waves(chunks, run.at_once)):
        begin = count * (costs.plan + costs.send)
        read, of_chunks = _read(costs, run, count, chance)
        end = count * (costs.receive + costs.note)
        now += begin + max(read, commit) + end
        driver, in_slots = driver + begin + commit + end, in_slots + of_chunks
        commit = over(costs.commit, count) + growth * number
    return now + commit, driver + commit, in_slots


def waves(chunks: int, at_once: int) -> Iterator[int]:
    """How many chunks each wave has: the first one of a table is not measured yet, and so it is shorter."""
    size = at_once
    while chunks:
        yield min(size, chunks)
        chunks, size = chunks - min(size, chunks), CHUNKS_PER_SLOT * at_once


def _read(costs: Costs, run: Copy, count: int, chance: np.random.Generator) -> tuple[float, float]:
    """The seconds until a wave is read, and those of all its chunks on executors.

    Each chunk goes to the executor that is free first. The source shares its bytes evenly: it is done at the earliest
    when all have been sent.
    """
    seconds = (cpu_of_rows(CHUNK_ROWS) * chance.lognormal(-(_SPREAD**2) / 2, _SPREAD, count)).tolist()
    ends = [0.0] * min(count, run.at_once)
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(*ends, count * CHUNK_ROWS * costs.row_bytes / run.bytes_per_second), sum(seconds)


def follow(costs: Costs, run: Follow) -> Outcome:
    """One round after the other, each followed by a pause of the same length; the driver merges tables one by one."""
    of_table = costs.again + _FINDS * costs.find
    append = over(costs.idle, run.watched) + over(costs.append, run.changed)
    by_changes = _ROUNDS_PAUSED * run.changes_per_second * UNIT_COSTS.changes / 1e6 / run.executors  # of a second
    if by_changes >= 1:
        return Outcome(run.name, math.inf, 0.0, 1.0, 1.0, 0)
    driver = run.changed * of_table + append
    seconds = driver / (1 - by_changes)
    longest = _ROUNDS_PAUSED * seconds + seconds
    memory = int(over(costs.copy_rss, run.watched) + run.changed * costs.entry_rss)
    return Outcome(run.name, seconds, 0.0, by_changes, driver / seconds, memory, longest)


def over(measured: Sequence[tuple[float, float]], value: float) -> float:
    """The cost at this value: between two measured points by interpolation, after the last one by the last slope."""
    points, costs = zip(*measured, strict=True)
    if value <= points[-1] or len(points) == 1:
        return float(np.interp(value, points, costs))
    slope = max(0.0, (costs[-1] - costs[-2]) / (points[-1] - points[-2]))
    return float(costs[-1] + slope * (value - points[-1]))


COPIES = (
    Copy("10,000 tables"),
    Copy("10,000 tables, 32 connections", connections=32),
    Copy("10,000 tables, a source of 10 GB/s", bytes_per_second=10 * GB),
    Copy("10,000 tables, a segment of the binlog in each wave", segments=10_000),
    Copy("one table", tables=1),
)
FOLLOWS = (
    Follow("50,000 changes a second of one table, of one", changed=1, watched=1),
    Follow("… of 100 tables, of 10,000", changed=100),
    Follow("… of 10,000 tables, of 10,000", changed=10_000),
)


def report(costs: Costs) -> str:
    """The measured costs and the simulated runs, as tables in Markdown."""
    chunk = [("plan", costs.plan), ("send its task", costs.send), ("receive its answer", costs.receive)]
    commit = over(costs.commit, 400) / 400
    chunk += [("note its split", costs.note), ("its share of the commit of a wave of 400", commit)]
    lines = ["| the driver, for each chunk | ms |", "|---|---|"]
    lines += [f"| {name} | {seconds * 1e3:.3f} |" for name, seconds in chunk]
    lines += [f"| together | {sum(seconds for _, seconds in chunk) * 1e3:.3f} |", ""]
    lines += ["| the driver, for each table or segment | ms |", "|---|---|"]
    lines += [f"| create a table | {costs.create * 1e3:.1f} |"]
    lines += [f"| commit a wave; chunks: {count:,} | {seconds * 1e3:.1f} |" for count, seconds in costs.commit]
    lines += [
        f"| publish for the first time; files: {count:,} | {seconds * 1e3:.1f} |" for count, seconds in costs.publish
    ]
    lines += [
        f"| commit a wave; chunks: 1, waves before: {before:,} | {cost * 1e3:.1f} |" for before, cost in costs.late[-1:]
    ]
    lines += [f"| commit a merge of a few changes, and publish it | {costs.again * 1e3:.1f} |"]
    lines += [
        f"| append a segment; tables with a file: {count:,} | {seconds * 1e3:.1f}, {seconds / count * 1e3:.4f} a file |"
        for count, seconds in costs.append
    ]
    lines += [f"| look through a spool of 1,000 segments | {costs.find * 1e6:.1f} |", ""]
    lines += ["| 11 TB in 1,000,000 chunks | hours | source | executors | driver | driver's memory | bound by |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [_row(copy(costs, run), 3_600) for run in COPIES]
    lines += ["", "| a round of `run --follow` | seconds | a change is seen after at most | executors | driver |"]
    lines += ["|---|---|---|---|---|"]
    for run in FOLLOWS:
        done = follow(costs, run)
        busy = f"{done.executors:.0%} | {done.driver:.0%}"
        lines.append(f"| {done.name} | {done.seconds:,.2f} | {done.longest:,.1f} s | {busy} |")
    return "\n".join(lines)


def _row(done: Outcome, unit: float) -> str:
    shares = " | ".join(f"{share:.0%}" for share in (done.source, done.executors, done.driver))
    return f"| {done.name} | {done.seconds / unit:,.1f} | {shares} | {done.memory / GB:,.1f} GB | {done.bound} |"


def draw(costs: Costs, file: Path) -> None:
    """The hours of a copy over the number of executors."""
    from matplotlib.figure import Figure as Picture  # a second

    picture = Picture(figsize=(8, 4.5), layout="constrained")
    axes, counts = picture.subplots(), [5, 10, 20, 50, 100, 200]
    for run in (COPIES[0], COPIES[2], COPIES[4]):
        runs = [replace(run, executors=count, connections=CHUNK_CONNECTIONS * count + 2) for count in counts]
        axes.plot(counts, [copy(costs, each).seconds / 3_600 for each in runs], marker="o", label=run.name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("executors")
    axes.set_ylabel("hours to copy 11 TB")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    picture.savefig(file, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the costs, or take the kept ones; simulate, and print the tables of docs/scale.md."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure the costs of the driver anew, and keep them")
    parser.add_argument("--chunks", type=int, default=1_000_000, help="to measure with (default: %(default)s)")
    parser.add_argument("--waves", type=int, default=1_000, help="of one table, to measure with (default: %(default)s)")
    parser.add_argument("--costs", type=Path, default=KEPT, help="the kept costs (default: %(default)s)")
    parser.add_argument("--plot", type=Path, help="a file for the picture")
    options = parser.parse_args(arguments)
    if options.measure:
        with tempfile.TemporaryDirectory(prefix="scale-") as folder:
            costs = measure(Path(folder), options.chunks, options.waves)
        about = {"day": f"{datetime.now(UTC):%Y-%m-%d}", "cores": os.cpu_count(), "machine": platform.machine()}
        options.costs.write_text(json.dumps({"about": about, "costs": costs.to_json()}, indent=1) + "\n")
    doc = json.loads(options.costs.read_text())
    costs = Costs.from_json(doc["costs"])
    print("; ".join(f"{name}: {value}" for name, value in doc["about"].items()), end="\n\n")
    print(report(costs))
    if options.plot:
        draw(costs, options.plot)


if __name__ == "__main__":
    main()
