"""Measure lakeingest against its peers, on one server and one table in one run, and the limits of the machine beside.

Run as `python -m benchmarks.pipelines`. The participants take turns, so that whatever else the machine does meets all
of them; each begins with the same table and meets the same changes. Wall seconds begin with the process and end when a
reader of the copy sees all rows, or a mark that was committed last; the start-up is what passes before the participant
is ready. CPU seconds are those of a participant and all that it starts, user and system, start-up too.

snapshot: the table into an empty lake. catchup: the changes that were made while the participant was stopped; then the
copy is read, and in the first round compared with the source. batches: what a run of ours costs against the size of the
table and of the batch. upsert: the same batches by PyIceberg's own upsert, into a table of --rows. follow: how fresh a
copy stays. recopy: the same while the table is read again, and how fast that is. limits: the server's own tools, of the
machine's PATH, and Parquet written alone.

Pictures need matplotlib, which `pip install --group dev` brings.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.copiers import COPIERS, Copier
from benchmarks.figures import OURS, Figure, Figures
from benchmarks.limits import LIMITS, limits
from benchmarks.ours_alone import BATCHES, FOLLOW, RECOPY, batches, follow, recopy
from benchmarks.participants import NotMeasured
from benchmarks.report import show
from benchmarks.rounds import CATCHUP, SNAPSHOT, Bench, bench, take_turn, warm_up
from benchmarks.source import administrator, serve_orders
from benchmarks.upserts import PYICEBERG, UPSERT, upserts

SCENARIOS = (SNAPSHOT, CATCHUP, BATCHES, UPSERT, FOLLOW, RECOPY, LIMITS)
_BUFFER_POOL = "1G"
_FILE_COLUMNS = 180
# durable as the defaults are; a frozen reader is not sent away
_SETTINGS = {"innodb_buffer_pool_size": _BUFFER_POOL, "innodb_redo_log_capacity": "2G", "net_write_timeout": "3600"}


def measure(place: Bench, figures: Figures, options: argparse.Namespace) -> None:
    """Everything that was asked for, round by round; who fails has no further rounds."""
    wanted = set(options.scenario)
    chosen = [copier for copier in COPIERS if copier.name in options.participants]
    programs = _programs(place, chosen, figures)
    for number in range(1, options.rounds + 1):
        for copier in chosen:
            if copier.name in programs and (SNAPSHOT in wanted or (CATCHUP in wanted and copier.changes != "none")):
                _turn(place, figures, copier, programs[copier.name], number, wanted)
    if OURS in programs:
        _measure_ours(place, figures, programs[OURS], options)
    if UPSERT in wanted:
        figures.notes[PYICEBERG.name] = list(PYICEBERG.notes)
        for number in range(1, options.rounds + 1):
            _guarded(figures, UPSERT, PYICEBERG.name, upserts(place, options.batch_sizes, number))


def _measure_ours(place: Bench, figures: Figures, program: Sequence[str], options: argparse.Namespace) -> None:
    """What needs no peer."""
    if BATCHES in options.scenario:
        found = batches(place, program, options.table_sizes, options.batch_sizes, options.rounds)
        _guarded(figures, BATCHES, OURS, found)
    for number in range(1, options.rounds + 1):
        if FOLLOW in options.scenario:
            _guarded(figures, FOLLOW, OURS, follow(place, program, options.follow_seconds, number))
        if RECOPY in options.scenario:
            _guarded(figures, RECOPY, OURS, recopy(place, program, options.follow_seconds, number))
        if LIMITS in options.scenario:
            for name, limit in limits(place, program, number):
                _guarded(figures, LIMITS, name, limit)


def _programs(place: Bench, chosen: Sequence[Copier], figures: Figures) -> dict[str, list[str]]:
    """The commands of those that can be built; ours has had its warm-up."""
    programs = {}
    for copier in chosen:
        _say(f"building {copier.name}")
        figures.notes[copier.name] = list(copier.notes)
        try:
            program = copier.build(place.folder)
            if copier.name == OURS:
                warm_up(place, program)
            programs[copier.name] = program
        except NotMeasured as reason:
            figures.leave_out("build", copier.name, str(reason))
    return programs


def _turn(
    place: Bench, figures: Figures, copier: Copier, program: Sequence[str], number: int, wanted: set[str]
) -> None:
    _say(f"round {number}: {copier.name}")
    found = take_turn(place, copier, program, number, wanted)
    _guarded(figures, f"{SNAPSHOT}, {CATCHUP}", copier.name, (figure for figure in found if figure.scenario in wanted))


def _guarded(figures: Figures, scenario: str, participant: str, found: Iterable[Figure]) -> None:
    """Measure and keep what is found, unless the participant failed in it before; or why there is no more."""
    if figures.is_left_out(scenario, participant):
        return
    try:
        for figure in found:
            figures.add(figure)
    except NotMeasured as reason:
        figures.leave_out(scenario, participant, str(reason))


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipelines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [copier.name for copier in COPIERS]
    add = parser.add_argument
    add("--scenario", nargs="+", choices=SCENARIOS, default=SCENARIOS, help="which (default: all)")
    add("--participants", nargs="+", choices=names, default=names, help="who (default: all)")
    add("--rows", type=int, default=2_000_000, help="of the table (default: %(default)s)")
    add("--changes", type=int, default=1_000_000, help="to catch up with (default: %(default)s)")
    add("--rounds", type=int, default=5, help="of all participants (default: %(default)s)")
    add("--batch-sizes", nargs="+", type=int, default=[1_000, 20_000, 100_000], help="(default: %(default)s)")
    add("--table-sizes", nargs="+", type=int, default=[2_000_000, 20_000_000], help="(default: %(default)s)")
    add("--follow-seconds", type=float, default=120, help="(default: %(default)s)")
    add("--no-comparison", action="store_true", help="do not compare copies with the source in the first round")
    add("--dir", type=Path, help="keeps peers and logs for the next run (default: nothing is kept)")
    add("--json", type=Path, help="a file that every round is written to as soon as it is over")
    add("--from-json", type=Path, help="measure nothing: show the figures of this file")
    add("--plots", type=Path, help="a folder for pictures")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> Figures:
    """Measure or load, then show; what there is."""
    options = _options(arguments)
    console = Console()
    console = console if console.is_terminal else Console(width=_FILE_COLUMNS)
    with ExitStack() as stack:
        if options.from_json:
            figures = Figures.load(options.from_json)
        else:
            temporary = tempfile.TemporaryDirectory(prefix="benchmarks-")
            folder = (options.dir or Path(stack.enter_context(temporary))).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(serve_orders(folder, options.rows, _SETTINGS))
            connection = stack.enter_context(administrator(server))
            size = options.rows, options.changes
            compares = not options.no_comparison
            place = stack.enter_context(bench(server, connection, folder, *size, compares=compares))
            about = {
                "server": server.version,
                "rows": options.rows,
                "changes": options.changes,
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "buffer pool": _BUFFER_POOL,
            }
            figures = Figures(about, options.json)
            measure(place, figures, options)
    show(figures, console)
    if options.plots:
        from benchmarks.plots import draw

        draw(figures, options.plots)
    return figures


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is to end, too
    main()
