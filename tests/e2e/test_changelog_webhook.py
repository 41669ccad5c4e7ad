"""The webhook of the page: its program and its command, as they stand there, against a real HTTP server that fails."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job
from tests.e2e.signalled import soon
from tests.servers.accounts import PASSWORD
from tests.servers.answering import answering

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "feed-another-system.md").read_text()
FAILS_EVERY = 4


def block(name: str) -> str:
    """An example of the page, by the comment in its first line."""
    [found] = re.findall(rf"```\w+\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a server that answers each fourth request with an error, and the events that it has accepted."""
    accepted: list[dict[str, Any]] = []
    asked: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Accept the event, or fail."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(1)
            is_accepted = (
                len(asked) % FAILS_EVERY != 0 and self.headers["Content-Type"] == "application/cloudevents+json"
            )
            if is_accepted:
                accepted.append(json.loads(body))
            self.send_response(204 if is_accepted else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", accepted


def start(job: Job, url: str) -> "subprocess.Popen[bytes]":
    """The command of the page, for the job's table and this receiver, as a group of processes of its own."""
    (job.folder / "webhook.py").write_text(block("webhook.py"))
    programs = job.folder / "bin"
    programs.mkdir(exist_ok=True)
    shim = programs / "lakeingest"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lakeingest "$@"\n')
    shim.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = block("webhook.sh").replace("shop.orders", f"{job.database}.orders")
    command = command.replace("https://example.com/changes", url)
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=job.folder,
        env=os.environ | {"JOB_PASSWORD": PASSWORD, "PYTHONPATH": str(ROOT), "PATH": path},
        start_new_session=True,
    )


@pytest.mark.long("six processes, of which two start Spark's workers")
def test_a_webhook_gets_each_change_whoever_fails(tmp_path: Path, mysql_server: LocalServer) -> None:
    """The receiver fails now and then, and the sender is killed: replayed without doubles, the events are the table."""
    job = Job(tmp_path / "job", mysql_server, "webhook_job").write()
    orders = f"{job.database}.orders"
    job.sql(f"CREATE TABLE {orders} (id INT PRIMARY KEY, v VARCHAR(9))")
    job.sql(f"INSERT INTO {orders} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'ü')")
    assert job.run()[0] == 0
    with receiver() as (url, accepted):
        sender = start(job, url)
        soon(lambda: len(accepted) == 5)
        soon(lambda: "rows.end" in (job.folder / "orders.position").read_text())
        os.killpg(sender.pid, signal.SIGKILL)
        sender.wait()
        job.sql(f"UPDATE {orders} SET v = 'new' WHERE id < 3", f"DELETE FROM {orders} WHERE id = 4")
        job.sql(f"UPDATE {orders} SET id = 9 WHERE id = 5")
        assert job.run()[0] == 0
        sender = start(job, url)
        soon(lambda: len(accepted) >= 9)
        os.killpg(sender.pid, signal.SIGTERM)
        sender.wait()
    events = {(doc["source"], doc["id"]): doc for doc in accepted}
    kinds = [doc["type"].removeprefix("lakeingest.") for doc in events.values()]
    assert kinds == ["read"] * 5 + ["update"] * 2 + ["delete", "update"]
    rows: dict[int, str] = {}
    for doc in events.values():
        before, after = doc["data"]["before"], doc["data"]["after"]
        if before is not None:
            assert rows.pop(before["id"]) == before["v"]
        if after is not None:
            rows[after["id"]] = after["v"]
    assert sorted(rows.items()) == job.source("orders")
    job.sql(f"DROP DATABASE {job.database}")
