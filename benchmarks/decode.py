"""Measure our decoders of MySQL's bytes against go-mysql and the Java client, in one run and on the same files.

Run as `python -m benchmarks.decode`. Each participant is a process of its own, and they take turns, so that whatever
else the machine does meets all of them. Rows are those of row events: an update is one. CPU seconds are the honest
figure: all of a process's threads, user and system, from the first byte to the last; what compiles as it goes has
warmed up before. Wall seconds depend on who else is at work, and on whether a participant has threads.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.participants import PARTICIPANTS, NotMeasured, Participant
from benchmarks.processes import cpu_seconds
from benchmarks.source import READER, Sample, serve

_SECONDS = 1_800  # for one round of one participant


@dataclass(frozen=True, slots=True)
class Round:
    """What one participant took once.

    `rss` are the most bytes of memory that it had, `server_cpu` the seconds of the server, with those for its warm-up.
    """

    rows: int
    wall: float
    cpu: float
    rss: int
    server_cpu: float


@dataclass(frozen=True, slots=True)
class Result:
    """All rounds of one participant, or why there are none."""

    participant: Participant
    rounds: tuple[Round, ...] = ()
    reason: str = ""

    def rates(self, seconds: str) -> list[float]:
        """Rows per second of `wall` or `cpu`: the least, the median, the greatest."""
        rates = [one.rows / getattr(one, seconds) for one in self.rounds]
        return [min(rates), statistics.median(rates), max(rates)]


def measure(
    sample: Sample, folder: Path, rounds: int, participants: Sequence[Participant] = PARTICIPANTS
) -> list[Result]:
    """Let the participants decode the sample, taking turns; what has to be built goes to `folder`."""
    results = {participant.name: Result(participant) for participant in participants}
    commands: dict[str, list[str]] = {}
    for number in range(rounds):
        for participant in participants:
            name = participant.name
            if results[name].reason:
                continue
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            try:
                if name not in commands:
                    commands[name] = participant.build(folder)
                one = _run(participant, commands[name], sample)
                results[name] = replace(results[name], rounds=(*results[name].rounds, one))
            except NotMeasured as reason:
                results[name] = Result(participant, reason=str(reason))
    return list(results.values())


def document(sample: Sample, results: list[Result]) -> dict[str, object]:
    """Everything that was measured, as JSON."""
    return {
        "server": sample.server.version,
        "rows": sample.rows,
        "changes": sample.changes,
        "binlog_bytes": sum(file.stat().st_size for file in sample.files),
        "participants": {
            result.participant.name: {"not_measured": result.reason}
            if result.reason
            else {
                "rows_per_cpu_second": result.rates("cpu"),
                "rows_per_second": result.rates("wall"),
                "rival": result.participant.rival,
                "ours_to_this": _ratio(result, results),
                "rounds": [asdict(one) for one in result.rounds],
            }
            for result in results
        },
    }


def table(results: list[Result]) -> Table:
    """The figures for a reader; of three in a cell the middle one is the median."""
    shown = Table(caption="rows per second: least / median / greatest of the rounds; ours ÷: by rows per CPU second")
    shown.add_column("participant")
    for heading in ("rows", "rows per CPU second", "rows per second", "ours ÷", "server CPU-s per 1M rows", "RSS MB"):
        shown.add_column(heading, justify="right")
    for result in results:
        if result.reason:
            continue
        ratio = _ratio(result, results)
        shown.add_row(
            result.participant.name,
            f"{result.rounds[0].rows:,}",
            *(" / ".join(f"{rate:,.0f}" for rate in result.rates(seconds)) for seconds in ("cpu", "wall")),
            "" if ratio is None else f"{ratio:.1f}",
            f"{statistics.median(one.server_cpu / one.rows * 1e6 for one in result.rounds):.1f}",
            f"{max(one.rss for one in result.rounds) >> 20}",
        )
    return shown


def _ratio(result: Result, results: list[Result]) -> float | None:
    """How many times the rows per CPU second of this participant ours of the same work has; None if that failed."""
    rival = next(one for one in results if one.participant.name == result.participant.rival)
    return None if rival.reason else rival.rates("cpu")[1] / result.rates("cpu")[1]


def _run(participant: Participant, command: list[str], sample: Sample) -> Round:
    """One round; NotMeasured when it fails, or does not find every row."""
    server = sample.server
    files, rows = sample.files, sample.changes
    if participant.mode == "rows":
        rows = sample.rows
    elif participant.is_slow:
        files, rows = files[:1], sample.first_changes
    before = cpu_seconds(server.pid)
    try:
        done = subprocess.run(
            [*command, participant.mode, server.host, str(server.port), READER, *map(str, files)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"it was not done in {_SECONDS} s") from error
    server_cpu = cpu_seconds(server.pid) - before
    if done.returncode != 0:
        [*_, last] = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise NotMeasured(last)
    took = json.loads(done.stdout)
    if took["rows"] != rows:
        raise NotMeasured(f"it found {took['rows']:,} rows, not {rows:,}")
    return Round(rows, took["wall"], took["cpu"], took["rss"], server_cpu)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of the table that is read (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=1_000_000, help="in the binlog (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all participants (default: %(default)s)")
    parser.add_argument(
        "--dir", type=Path, help="keeps binlog files and peers for the next run (default: nothing is kept)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        made = stack.enter_context(serve(folder, options.rows, options.changes))
        results = measure(made, folder.absolute(), options.rounds)
        if options.json:
            print(json.dumps(document(made, results), indent=2))
        else:
            Console().print(table(results))
            for result in results:
                if result.reason:
                    print(f"{result.participant.name}: not measured: {result.reason}")


if __name__ == "__main__":
    main()
