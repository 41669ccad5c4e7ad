"""What a webhook gets, on a real web server: retried with a limit, never by another address, and safe in a chat."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeingest.config import Config, parse_config
from lakeingest.config.notify import Notify
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.figures.notices import Notice
from lakeingest.core.tables.schema import TableId
from lakeingest.monitoring import notifier, webhook
from lakeingest.monitoring.notifier import Notifier
from lakeingest.monitoring.webhook import document, post, slack
from lakeingest.pipeline.events import Event, Measured, Undelivered
from tests.servers.answering import answering

NOTICE = Notice("failed", "shop.t", "GateFailed", "binlog.000001:4", 61.23456)


class Hook(ThreadingHTTPServer):
    """Answers with the codes of `answers`, the last one again and again; -1: with silence."""

    def __init__(self) -> None:
        self.answers = [200]
        self.bodies: list[str] = []
        self.keys: set[str] = set()  # what requests have proven themselves with
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/T0/se-cret"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Keep the body, and answer."""
        hook = self.server
        assert isinstance(hook, Hook)
        hook.keys.add(self.headers.get("Authorization", ""))
        hook.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        code = hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0]
        if code < 0:
            time.sleep(2)
            return
        self.send_response(code)
        self.send_header("Location", f"{hook.url}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A web server; pauses between tries are short."""
    monkeypatch.setattr(webhook, "PAUSES_SECONDS", (0.01, 0.01))
    with answering(Hook()) as server:
        yield server


@pytest.mark.parametrize(
    ("answers", "tries", "error"),
    [
        ([200], 1, None),
        ([204], 1, None),
        ([503, 429, 200], 3, None),
        ([503], 3, "the server answers 503"),
        ([404], 1, "the server answers 404"),  # another try would have the same answer
        ([307], 1, "the server answers 307"),
        ([302], 1, "the server answers 302"),
        ([-1], 3, "TimeoutError"),
    ],
)
def test_a_notice_is_tried_again_where_that_may_help(
    hook: Hook, answers: list[int], tries: int, error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times at most; no error has the URL, which may be a token."""
    monkeypatch.setattr(webhook, "ANSWER_SECONDS", 0.2)
    hook.answers = answers
    [result] = post(hook.url, [document("shop", NOTICE, "why")])
    assert len(hook.bodies) == tries
    assert (None if result is None else str(result)) == error
    assert "se-cret" not in str(result)


def test_after_a_notice_that_does_not_arrive_the_others_wait(hook: Hook) -> None:
    """So that a server that is away costs a limited time."""
    docs = [document("shop", NOTICE, "") for _ in range(3)]
    hook.answers = [200, 404]
    first, *others = post(hook.url, docs)
    assert first is None
    assert all(others)
    assert len(hook.bodies) == 2


def test_the_document_says_all_of_it() -> None:
    """What is not known is null."""
    doc = document("shop", NOTICE, "rows fail")
    assert doc.pop("at").endswith("+00:00")
    assert doc == {
        "pipeline": "shop",
        "occasion": "failed",
        "table": "shop.t",
        "error": "GateFailed",
        "message": "rows fail",
        "runbook": "lakeingest explain GateFailed",
        "position": "binlog.000001:4",
        "age_seconds": 61.235,
    }
    quiet = document("shop", Notice("stale", "shop.t", ""), "")
    assert [quiet[key] for key in ("error", "message", "runbook", "position", "age_seconds")] == [None] * 5


def test_a_name_from_the_source_calls_nobody_in_a_chat() -> None:
    """Neither a channel, nor by a line of its own."""
    table = "shop.<!channel>\n*bold* & <http://evil.example|click>"
    text = slack(document("shop", Notice("failed", table, "GateFailed", None, 7200.0), "why"))["text"]
    assert "<" not in text
    assert "\n" not in text
    assert "&lt;!channel&gt;" in text
    assert "2.0 hours ago" in text
    assert text.endswith("GateFailed · why · lakeingest explain GateFailed")


def config_for(folder: Path, hook: Hook) -> Config:
    """A pipeline whose state is in the folder."""
    doc = {"name": "shop", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    config = parse_config(doc | {"state": str(folder)}, folder, {})
    return config.model_copy(update={"notify": Notify(webhook=SecretStr(hook.url))})


def measured(tables: int, error: str) -> Measured:
    """So many tables, all of which have this error."""
    measures = (
        Measure(TableId("shop", f"t{number}"), 1, None, None, None, None, error, paused=False, max_staleness=None)
        for number in range(tables)
    )
    return Measured(tuple(measures), Load(), None)


def test_many_notices_go_out_in_groups_and_none_is_lost(hook: Hook, tmp_path: Path) -> None:
    """The next measurement sends what is left; a later run knows what was told."""
    config, many = config_for(tmp_path, hook), notifier.MOST + 3
    first = Notifier(config, lambda _: None)
    first.observe(measured(many, "GateFailed"))
    first.end()
    assert len(hook.bodies) == notifier.MOST
    second = Notifier(config, lambda _: None)
    second.observe(measured(many, "GateFailed"))
    second.end()
    third = Notifier(config, lambda _: None)
    third.observe(measured(many, "GateFailed"))
    third.end()
    tables = [json.loads(body)["table"] for body in hook.bodies]
    assert sorted(tables) == sorted({f"shop.t{number}" for number in range(many)})


def test_what_does_not_arrive_is_said_and_told_later(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on meanwhile, and does not ask too often."""
    monkeypatch.setattr(notifier, "AGAIN_SECONDS", 0.2)
    events = list[Event]()
    telling = Notifier(config_for(tmp_path, hook), events.append)
    hook.answers = [404, 200]
    began = time.monotonic()
    while len(hook.bodies) < 2:
        telling.observe(measured(1, "GateFailed"))
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    assert time.monotonic() - began > 0.2
    telling.end()
    assert [type(event) for event in events if not isinstance(event, Measured)] == [Undelivered]
    assert len(hook.bodies) == 2
