"""Measure lakeingest beside two peers in ten minutes, and compare the ratios with kept ones: `make bench-quick`.

A ratio says how many times what lakeingest takes a peer takes, in seconds or in CPU seconds: more is better. It depends
less on the machine than seconds do. The run fails, and names each ratio that is missing or has fallen by more than
TOLERANCE. Peers copy no changes, so our changes are compared with as many rows of theirs. Copies are not compared with
the source: `make bench` does that.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import pipelines
from benchmarks.figures import OURS, Figure, Figures
from benchmarks.rounds import CATCHUP, SNAPSHOT

TOLERANCE = 0.15
KEPT = Path(__file__).with_name("measured") / "quick.json"
PEERS = ("spark-jdbc", "rivet")
ROWS, CHANGES, ROUNDS = 1_000_000, 200_000, 3

_MEASURES: Mapping[str, Callable[[Figure], float]] = {
    "seconds": lambda one: one.wall / one.count,
    "seconds without start-up": lambda one: one.net / one.count,
    "CPU seconds": lambda one: one.cpu / one.count,
}


def ratios(figures: Figures) -> dict[str, float]:
    """For each measure and each peer, the peer's value divided by ours: the median of all rounds."""
    found = {}
    for scenario, title in ((SNAPSHOT, "copy"), (CATCHUP, "catch up")):
        for peer in PEERS:
            theirs = {one.round: one for one in figures.of(SNAPSHOT, peer)}
            pairs = [(our, theirs[our.round]) for our in figures.of(scenario, OURS) if our.round in theirs]
            for name, value in _MEASURES.items():
                if pairs:
                    of_rounds = [value(their) / value(our) for our, their in pairs]
                    found[f"{title}, {name}, {peer}"] = statistics.median(of_rounds)
    return found


def fallen(now: Mapping[str, float], kept: Mapping[str, float], tolerance: float = TOLERANCE) -> list[str]:
    """A line for each kept ratio that is missing now, or has fallen by more than `tolerance`."""
    lines = []
    for name, before in kept.items():
        if name not in now:
            lines.append(f"{name}: not measured; it was {before:.2f}")
        elif now[name] < before * (1 - tolerance):
            lines.append(
                f"{name}: {now[name]:.2f}; it was {before:.2f}, so it has fallen by {1 - now[name] / before:.0%}"
            )
    return lines


def table(now: Mapping[str, float], kept: Mapping[str, float]) -> str:
    """A line for each ratio of now or before."""
    lines = [f"{'times ours':48}{'now':>8}{'kept':>8}"]
    lines += [f"{name:48}{_shown(now.get(name))}{_shown(kept.get(name))}" for name in {**kept, **now}]
    return "\n".join(lines)


def _shown(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}':>8}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or load, compare, and show. 1 if a ratio has fallen."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quick", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dir", type=Path, help="keeps peers and logs for the next run (default: nothing is kept)")
    add("--rounds", type=int, default=ROUNDS, help="(default: %(default)s)")
    add("--from-json", type=Path, help="measure nothing: take the figures of this file")
    add("--kept", type=Path, default=KEPT, help="the ratios to compare with (default: %(default)s)")
    add("--keep", action="store_true", help="keep the ratios of this run instead of comparing them")
    options = parser.parse_args(arguments)
    if options.from_json:
        figures = Figures.load(options.from_json)
    else:
        with tempfile.TemporaryDirectory(prefix="quick-") as temporary:
            folder = options.dir or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            work = ["--scenario", SNAPSHOT, CATCHUP, "--participants", OURS, *PEERS, "--rounds", str(options.rounds)]
            size = ["--rows", str(ROWS), "--changes", str(CHANGES)]
            figures = pipelines.main(
                [*work, *size, "--dir", str(folder), "--json", str(folder / "quick.json"), "--no-comparison"]
            )
    now = ratios(figures)
    if options.keep:
        load = f"{os.getloadavg()[2]:.1f}"  # of the last 15 minutes
        about = {"day": f"{datetime.now(UTC):%Y-%m-%d}", "load": load, **figures.about}
        options.kept.write_text(json.dumps({"about": about, "ratios": now}, indent=1) + "\n")
    kept = json.loads(options.kept.read_text())["ratios"]
    print(table(now, kept))
    lines = fallen(now, kept)
    for line in [*lines, *(f"{name}: {reason}" for name, reason in figures.not_measured.items())]:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
