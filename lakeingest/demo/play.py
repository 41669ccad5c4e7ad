"""The demo: copies a shop from a local server while writers change it, then proves source = target."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console
from rich.text import Text

from lakeingest import console as output
from lakeingest.commands.run import run
from lakeingest.commands.verification import TableVerification
from lakeingest.commands.verify import verify
from lakeingest.config import Config, parse_config
from lakeingest.config.target import FormatName
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.queries import queries
from lakeingest.demo.s3 import local_s3
from lakeingest.demo.server import LocalServer, local_server
from lakeingest.demo.shop import DATABASE, TABLES, Sizes, build
from lakeingest.demo.workload import WRITERS, Workload
from lakeingest.errors import OperatorNeeded, VerificationFailed
from lakeingest.pipeline.events import Event, Merged, Observer, Planned, Published, WaveCommitted

DemoPlace = Literal["local", "s3"]
CHANGES = 20_000  # so few that even the reference decoder is fast enough
MARKER = ".lakeingest-demo"
CHUNKS = 100  # about so many chunks of the whole shop, so that even a small shop takes several waves
LEAST_CHUNK_ROWS = 200


@dataclass(slots=True)
class Tally:
    """Numbers about the run, counted from its events.

    `began`: the time of the first Planned, in seconds of the monotonic clock; 0 before it.
    `copied_at`: the time of the last wave, by the same clock.
    `rows`: the number of copied rows.
    `applied`: the number of change rows that merges have applied.
    `dropped`: the number of change rows that merges have left out because the chunks contain them.
    `tables_left`: the tables that are not copied completely yet.
    """

    began: float = 0.0
    copied_at: float = 0.0
    rows: int = 0
    waves: int = 0
    applied: int = 0
    dropped: int = 0
    publishes: int = 0
    tables_left: set[str] = field(default_factory=lambda: set(TABLES))

    def count(self, event: Event) -> None:
        """Count an event. The copy begins with the first Planned; a table is complete with its last WaveCommitted."""
        match event:
            case Planned() if not self.began:
                self.began = time.monotonic()
            case WaveCommitted():
                self.copied_at = time.monotonic()
                self.rows += event.rows
                self.waves += 1
                if event.complete:
                    self.tables_left.discard(event.table.name)
            case Merged():
                self.applied += event.applied
                self.dropped += event.dropped
            case Published():
                self.publishes += 1


def play(folder: Path, target: FormatName, rows: int, seed: int, out: Console, place: DemoPlace = "local") -> None:
    """Run the demo in `folder`; its files stay there. Raises VerificationFailed if source ≠ target.

    `target` is the format of the lake, and `rows` the number of rows of the shop. With `place` "s3", tables and state
    are in a local S3, and with "local" in `folder`.
    """
    _empty_folder(folder)

    def say(text: str) -> None:
        out.print(Text(text))

    with ExitStack() as stack:
        server = stack.enter_context(local_server(folder / "server", say=say))
        say(f"MySQL {server.version}, {server.origin}, on {server.host}:{server.port}")
        lake = _keys_for_folder(target) if place == "local" else _start_s3(stack, folder, target, say)
        with server.connect() as connection:
            size = build(connection, rows, seed)
        say(f"a shop of {size.total:,} rows in {len(TABLES)} tables; {WRITERS} writers change it while it is copied")
        config = _write_config(folder, lake, server, rows)
        tally = Tally()
        with Workload(server, size, CHANGES, seed) as workload, output.observer(out) as draw:
            run(config, observe=_demo_observer(tally, workload, size, draw))
        results = verify(config)
        _print_report(out, config, tally, workload, results)
    if not all(result.equal for result in results):
        raise VerificationFailed("source ≠ target")


def _demo_observer(tally: Tally, workload: Workload, size: Sizes, draw: Observer) -> Observer:
    """An observer that counts and draws events, and that controls the writers.

    The writers make their changes at the pace of the copy. When all tables are copied, the observer waits until the
    writers have made all changes, so that the run applies them all before it ends.
    """

    def observe(event: Event) -> None:
        tally.count(event)
        draw(event)
        # a little more than the share of rows that is copied; some changes are left for `finish`
        workload.allow(min(0.95, 0.1 + tally.rows / size.total))
        if isinstance(event, WaveCommitted) and not tally.tables_left:
            workload.finish()  # waits

    return observe


def _print_report(
    out: Console, config: Config, tally: Tally, workload: Workload, results: tuple[TableVerification, ...]
) -> None:
    """Print the numbers of the run, the result of the verification, and commands that query the tables."""
    seconds = max(tally.copied_at - tally.began, 0.001)  # never 0, because it is a divisor
    out.print()
    rate = tally.rows / seconds
    commands = queries(config, TableId(DATABASE, "orders")).items()
    lines = [
        f"copied      {tally.rows:,} rows in {tally.waves} waves, {seconds:.1f} s: {rate:,.0f} rows/s, starts included",
        f"written     {workload.made:,} row changes meanwhile, {workload.rolled_back:,} transactions rolled back",
        f"binlog      {tally.applied:,} change rows applied, {tally.dropped:,} dropped by the filter: chunks had them",
        f"published   {tally.publishes} times",
        *output.verification_lines(results),
        "",
    ]
    if config.target.warehouse.scheme is None:
        lines.append(f"The tables are in {config.target.warehouse}. To query them with")
        lines += [f"{tool:<11} {command}" for tool, command in commands]
    else:
        lines.append(f"The tables were in {config.target.warehouse}, whose server ends with the demo.")
    for text in lines:
        out.print(Text(text), soft_wrap=True)


def _keys_for_folder(target: FormatName) -> dict[str, Any]:
    """The keys `target` and `state` of pipeline.yml, for tables and state in the demo's folder."""
    return {"target": {"format": target, "warehouse": "./warehouse"}, "state": "./state"}


def _start_s3(stack: ExitStack, folder: Path, target: FormatName, say: Callable[[str], None]) -> dict[str, Any]:
    """Start a local S3, and for Iceberg a REST catalog on it. Returns the keys `target` and `state` of pipeline.yml."""
    store = stack.enter_context(local_s3(folder / "s3", say))
    say(f"S3 (versitygw) on {store.endpoint}")
    os.environ.update(store.environment)  # the credentials of S3 are in the environment, as in production
    lake = {"format": target, "warehouse": f"s3://{store.bucket}/warehouse", "storage": store.storage}
    if target == "iceberg":
        from lakeingest.demo.rest_catalog import local_rest_catalog

        uri = stack.enter_context(local_rest_catalog(folder / "catalog", store=store, say=say))
        say(f"Iceberg's REST reference server on {uri}")
        lake["catalog"] = {"type": "rest", "uri": uri}
    return {"target": lake, "state": f"s3://{store.bucket}/state"}


def _write_config(folder: Path, lake: Mapping[str, Any], server: LocalServer, rows: int) -> Config:
    """Write the demo's pipeline.yml into `folder`, and load it. The file names a variable in place of the password."""
    doc = {
        "version": 1,
        "name": "demo",
        "source": {
            "type": "mysql",
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": "${LAKEINGEST_DEMO_PASSWORD}",
        },
        "tables": {
            "include": [f"{DATABASE}.*"],
            "options": {f"{DATABASE}.*": {"chunk_rows": max(LEAST_CHUNK_ROWS, rows // CHUNKS)}},
        },
        **lake,
    }
    (folder / "pipeline.yml").write_text(yaml.safe_dump(doc, sort_keys=False), encoding="utf-8")
    return parse_config(doc, folder, {"LAKEINGEST_DEMO_PASSWORD": server.password})


def _empty_folder(folder: Path) -> None:
    """Empty the folder, and put a marker file into it. Raises OperatorNeeded for a folder with files but no marker."""
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / MARKER).exists():
                raise OperatorNeeded(
                    f"{folder} is not empty and not a folder of the demo; choose another one with --dir"
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    except OSError as error:
        raise OperatorNeeded(f"{folder} cannot be used: {error.strerror}; choose another one with --dir") from error
