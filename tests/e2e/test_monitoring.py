"""What a run tells monitoring: how fresh each table is, its metrics, and notices of what fails, ages or recovers."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from lakeingest.commands.run import run
from lakeingest.commands.status import TableStatus, status
from lakeingest.config import Quality
from lakeingest.config.metrics import Metrics
from lakeingest.config.notify import Notify
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.figures import budget
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, LeaseHeld, SourceAway
from lakeingest.pipeline.events import Following, Measured, Undelivered
from lakeingest.pipeline.rounds import counting, measuring
from lakeingest.state.lease import held
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, soon
from tests.servers.accounts import COPIER
from tests.servers.answering import answering

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

CHEAP = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: v, max_value: 100}}]"
Samples = dict[tuple[str, ...], float]


def read(text: str) -> Samples:
    """Each series as Prometheus' own parser reads it: its name, and the values of its labels but `pipeline`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "pipeline"}
            found[(sample.name.removeprefix("lakeingest_"), *labels.values())] = sample.value
    return found


def options(pipe: Pipe, **chosen: Any) -> None:
    """Let the pipeline have these keys."""
    pipe.config = pipe.config.model_copy(update=chosen)


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def pair(pipe: Pipe, tmp_path: Path) -> Pipe:
    """Two tables, one with a name that is not plain, a suite for the other, and a text file."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.t.yml").write_text(CHEAP)
    options(pipe, quality=Quality(suites=Place.of(suites)), metrics=Metrics(textfile=tmp_path / "shop.prom"))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", f"CREATE TABLE `{ODD}` (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO t VALUES (1, 1), (2, 2)", f"INSERT INTO `{ODD}` VALUES (1)")
    return pipe


ODD = "客户订单"


def of(pipe: Pipe) -> Samples:
    """What the text file has."""
    assert pipe.config.metrics.textfile is not None
    return read(pipe.config.metrics.textfile.read_text())


def state_of(pipe: Pipe, table: str) -> TableStatus:
    """What `status` says without the source."""
    [found] = [one for one in status(pipe.config, offline=True) if one.table.name == table]
    return found


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_run_leaves_its_figures_and_a_failed_table_says_why(pair: Pipe) -> None:
    """Rows, commits, gates and the exit code; the other table goes on, and the failed one is as old as it is."""
    t, odd = f"{pair.database}.t", f"{pair.database}.{ODD}"
    before = time.time()
    pair.run()
    first = of(pair)
    assert (first["rows", t], first["rows", odd]) == (2, 1)
    assert (first["copied_rows_total", t], first["publish_seconds_count", t]) == (2, 1)
    assert (first["run_exit_code", ""], first["run_caught_up",], first["run_active",]) == (0, 1, 0)
    assert (first["table_failed", "", "", t], first["table_failed", "", "", odd]) == (0, 0)
    assert (first["lag_bytes", t], first["lag_seconds", t]) == (0, 0)
    assert before <= first["fresh_as_of_timestamp_seconds", t] <= time.time()
    assert first["binlog_kept_seconds",] > 86_400
    assert first["run_stage_seconds", "publishes"] > 0
    # what fails its gate stays as it was, and gets older
    pair.sql("UPDATE t SET v = 1000 WHERE id = 1", f"INSERT INTO `{ODD}` VALUES (2)")
    time.sleep(1.1)
    with pytest.raises(GateFailed):
        pair.run()
    second = of(pair)
    assert second["table_failed", "GateFailed", "1", t] == 1
    assert ("table_failed", "", "", t) not in second
    assert (second["rows", t], second["rows", odd]) == (2, 2)
    assert second["run_exit_code", "GateFailed"] == 1
    assert second["gate_expectations", "failed", t] == 1
    assert second["fresh_as_of_timestamp_seconds", t] == pytest.approx(
        first["fresh_as_of_timestamp_seconds", t], abs=0.01
    )
    assert second["fresh_as_of_timestamp_seconds", odd] > first["fresh_as_of_timestamp_seconds", odd] + 1
    assert second["lag_bytes", t] > 0
    assert second["lag_seconds", t] > 0
    assert second["lag_bytes", odd] == 0
    pair.sql("UPDATE t SET v = 10 WHERE id = 1")
    pair.run()
    assert of(pair)["table_failed", "", "", t] == 0
    assert of(pair)["lag_bytes", t] == 0


@pytest.mark.long("whole runs; tests/core/test_freshness has the decision")
def test_a_quiet_table_is_as_fresh_as_the_last_look_at_the_source(pair: Pipe) -> None:
    """By what a run has seen, although its last change is old; without a run it ages, also where the source is away."""
    pair.run()
    changed_at = state_of(pair, "t").fresh_as_of
    assert changed_at is not None
    time.sleep(1.1)
    pair.sql(f"INSERT INTO `{ODD}` VALUES (2)")
    pair.run()  # `t` has no change, and no commit
    quiet = state_of(pair, "t")
    assert quiet.fresh_as_of is not None
    assert quiet.fresh_as_of > changed_at
    assert quiet.shown is not None
    assert quiet.shown.source_time is not None
    assert quiet.shown.source_time <= quiet.fresh_as_of
    time.sleep(1.1)
    older = state_of(pair, "t")
    assert older.fresh_as_of == quiet.fresh_as_of
    assert older.freshness_seconds is not None
    assert older.freshness_seconds > 1
    # with the source: nothing was written since, so it is fresh now
    [now] = [one for one in status(pair.config) if one.table.name == "t"]
    assert (now.lag_bytes, now.freshness_seconds) == (0, 0.0)
    # the objective is missed, and said
    tables = pair.config.tables.model_copy(
        update={"options": {"*.t": TableOptions.model_validate({"max_staleness": "1s"})}}
    )
    options(pair, tables=tables)
    assert "t: stale: readers see it as of" in status(pair.config, offline=True).note
    pair.run()
    before = of(pair)
    time.sleep(1.1)
    away = pair.config.source.model_copy(update={"port": free_port()})
    options(pair, source=away)
    with pytest.raises(SourceAway):
        pair.run()
    last = of(pair)
    assert last["run_exit_code", "SourceAway"] == 75
    assert last["fresh_as_of_timestamp_seconds", f"{pair.database}.t"] == pytest.approx(
        float(last["fresh_as_of_timestamp_seconds", f"{pair.database}.{ODD}"])
    )
    assert last["freshness_seconds", f"{pair.database}.t"] > 1
    # rules must go on to know what the last run knew
    for name in ("rows", "table_paused", "max_staleness_seconds"):
        assert before[name, f"{pair.database}.t"] == last[name, f"{pair.database}.t"]
    assert {value for key, value in last.items() if key[0] == "table_failed"} == {0}
    kept_until = "binlog_kept_until_timestamp_seconds"
    assert last[kept_until,] == pytest.approx(before[kept_until,], abs=10)


@pytest.mark.long("whole runs; tests/core/test_freshness has the decision")
def test_nothing_is_known_of_a_state_that_is_lost(pair: Pipe) -> None:
    """Then the last transaction before the position tells it, and of a table without a copy nothing does."""
    pair.run()
    for name in ("fresh.json", "measures.json"):
        (pair.state / name).delete()
    found = state_of(pair, "t")
    assert found.shown is not None
    assert found.fresh_as_of == found.shown.source_time
    pair.sql("CREATE TABLE later (id INT PRIMARY KEY)")
    [later] = [one for one in status(pair.config) if one.table.name == "later"]
    assert (later.fresh_as_of, later.freshness_seconds) == (None, None)
    [row] = [row for row in status(pair.config).cells() if row[0] == f"{pair.database}.later"]
    assert "unknown" in row


@pytest.mark.formats("iceberg")
def test_a_run_that_ends_has_followed_nothing(pair: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, it leaves the count of the run that followed last."""
    monkeypatch.setattr(counting, "COUNT_SECONDS", 0.0)
    pair.run()
    assert not (pair.state / "following.json").exists()
    assert {event.followed for event in pair.seen(Measured) if isinstance(event, Measured)} == {None}


@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_answers_requests(pair: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback alone; what is published in between is seen there, and idle tables stay fresh by the minute."""
    monkeypatch.setattr(measuring, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(budget, "MOST_SECONDS", 2.0)
    port = free_port()
    options(pair, metrics=Metrics(port=port, textfile=pair.config.metrics.textfile))
    t = f"{pair.database}.t"

    def now() -> Samples:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return read(answer.read().decode())

    def work() -> None:
        soon(lambda: bool(pair.seen(Measured)))
        soon(lambda: ("rows", t) in now())
        assert (now()["rows", t], now()["run_active",]) == (2, 1)
        assert ("run_exit_code", "") not in now()
        pair.sql("INSERT INTO t VALUES (3, 3)")
        soon(lambda: now()["rows", t] == 3)
        begun = now()["fresh_as_of_timestamp_seconds", t]
        soon(lambda: now()["fresh_as_of_timestamp_seconds", t] > begun + 1)  # and nothing was written
        assert now()["freshness_seconds", t] < 10
        soon(lambda: of(pair)["rows", t] == 3)
        with pytest.raises(LeaseHeld):  # another run of the pipeline: it neither takes the port nor the file
            run(pair.config, (), None, lambda _: None, None)
        assert of(pair)["run_active",] == 1

    follow_while(pair, work)
    assert of(pair)["run_exit_code", ""] == 0
    with pytest.raises(OSError, match="refused"):
        now()


@contextmanager
def server(answers: Callable[[str], int]) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """A web server: its URL, and the requests so far as (method and path, credentials, body)."""
    requests: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            requests.append((f"{self.command} {self.path}", self.headers.get("Authorization", ""), body))
            code = answers(body)
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_PUT = do_POST = do_GET = answer  # noqa: N815 - as the library calls them

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as http:
        yield f"http://127.0.0.1:{http.server_port}", requests


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_push_gateway_gets_the_last_figures(pair: Pipe) -> None:
    """With the user and the password there. One that fails, or is away, fails no run, and is named once."""
    with server(lambda _: 200) as (url, requests):
        settings = Metrics(push=url, push_user="us", push_password=SecretStr("se:cret"))
        options(pair, metrics=settings)
        pair.run()
    path, credentials, body = requests[-1]
    assert path == f"PUT /metrics/job/lakeingest/pipeline/{pair.config.name}"
    assert credentials == "Basic dXM6c2U6Y3JldA=="
    assert read(body)["run_exit_code", ""] == 0
    assert read(body)["rows", f"{pair.database}.t"] == 2
    pair.events.clear()
    pair.run()  # nobody listens any more
    [event] = pair.seen(Undelivered)
    assert isinstance(event, Undelivered)
    assert event.what == "metrics.push"
    assert "se:cret" not in event.reason


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_place_that_cannot_be_written_fails_no_run(pair: Pipe, tmp_path: Path) -> None:
    """A folder that is not there, and a port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options(pair, metrics=Metrics(port=port, textfile=tmp_path / "not" / "there.prom"))
        follow_while(pair, lambda: None)
    kinds = {event.what for event in pair.seen(Undelivered) if isinstance(event, Undelivered)}
    assert kinds == {"metrics.port", "metrics.textfile"}
    assert pair.rows("t") == [(1, 1), (2, 2)]


@pytest.mark.long("several runs on Hudi", only=("hudi",))
def test_a_webhook_is_told_each_change_once(pair: Pipe) -> None:
    """What failed and what recovered, with error, runbook and position; what has not arrived comes again."""
    t = f"{pair.database}.t"
    codes = [200]
    with server(lambda _: codes[-1]) as (url, requests):
        options(pair, notify=Notify(webhook=SecretStr(f"{url}/T0/secret")))
        pair.run()
        assert requests == []
        pair.sql("UPDATE t SET v = 1000 WHERE id = 1")
        codes.append(302)  # to another address: not followed
        with pytest.raises(GateFailed):
            pair.run()
        assert {path for path, *_ in requests} == {"POST /T0/secret"}
        undelivered = [event for event in pair.seen(Undelivered) if isinstance(event, Undelivered)]
        assert [(event.what, event.reason) for event in undelivered] == [
            ("notify.webhook", "OSError: the server answers 302")
        ]
        requests.clear()
        codes.append(200)
        for _ in range(2):
            with pytest.raises(GateFailed):
                pair.run()
        [(_, _, body)] = requests
        doc = json.loads(body)
        assert (doc["pipeline"], doc["occasion"], doc["table"]) == (pair.config.name, "failed", t)
        assert (doc["error"], doc["runbook"]) == ("GateFailed", "lakeingest explain GateFailed")
        assert "it failed the gate before publish" in doc["message"]
        assert doc["position"] == str(state_of(pair, "t").shown.position.at)  # type: ignore[union-attr]
        assert doc["age_seconds"] > 0
        pair.sql("UPDATE t SET v = 1 WHERE id = 1")
        pair.run()
        assert [json.loads(body)["occasion"] for *_, body in requests] == ["failed", "recovered"]
        requests.clear()
        source = pair.config.source
        options(pair, source=source.model_copy(update={"port": free_port()}))
        for _ in range(2):
            with pytest.raises(SourceAway):
                pair.run()
        options(pair, source=source, notify=Notify(webhook=SecretStr(f"{url}/T0/secret"), format="slack"))
        pair.run()
    away, back = (json.loads(body) for *_, body in requests)
    assert (away["occasion"], away["table"], away["error"]) == ("failed", None, "SourceAway")
    assert back == {"text": f"{pair.config.name}: run recovered: SourceAway · lakeingest explain SourceAway"}


@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_tells_what_is_stale(pair: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that fails its gate is stale soon after, and recovers once its rows are mended."""
    monkeypatch.setattr(measuring, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr("lakeingest.pipeline.rounds.one_round.RETRY_SECONDS", 1.0)
    tables = Tables(
        include=pair.config.tables.include, options={"*.t": TableOptions.model_validate({"max_staleness": "3s"})}
    )
    with server(lambda _: 200) as (url, requests):
        options(pair, tables=tables, notify=Notify(webhook=SecretStr(url)))

        def occasions() -> list[str]:
            return [json.loads(body)["occasion"] for *_, body in requests]

        def work() -> None:
            pair.sql("UPDATE t SET v = 1000 WHERE id = 1")
            soon(lambda: occasions() == ["failed", "stale"])
            pair.sql("UPDATE t SET v = 10 WHERE id = 1")
            soon(lambda: occasions() == ["failed", "stale", "recovered"])

        follow_while(pair, work)
    assert pair.seen(Following)


@pytest.mark.long("processes")
@pytest.mark.formats("iceberg")
def test_the_commands_say_how_fresh_it_is(mysql_server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`status --json`, and last_run.json, which moves while a run follows and nothing happens."""
    job = Job(tmp_path_factory.mktemp("monitored"), mysql_server, "monitored_job").write()
    try:
        job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY)", f"INSERT INTO {job.database}.t VALUES (1)")
        table = f"{job.database}.t"
        process = job.start("run", "--follow")
        last = job.state / "last_run.json"

        def outcome() -> dict[str, Any]:
            doc = json.loads(last.read()) if last.exists() else {}
            assert process.poll() is None
            return doc if doc.get("fresh_as_of") else {}

        soon(lambda: bool(outcome()))
        first = outcome()
        soon(lambda: outcome()["fresh_as_of"][table] > first["fresh_as_of"][table])
        assert outcome()["at"] > first["at"]
        soon(lambda: bool(outcome()["following"]))
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(last.read())["fresh_as_of"][table] >= first["fresh_as_of"][table]
        code, said = job.call("status", "--json", "--offline")
        assert code == 0
        [doc] = json.loads(said)
        assert doc["fresh_as_of"] >= first["fresh_as_of"][table]
        assert 0 < doc["freshness_seconds"] < 600
        assert doc["following"]["bill"]["cpu_seconds"] > 0
    finally:
        job.sql(f"DROP DATABASE {job.database}")


@pytest.mark.long("the same on another format", only=("hudi",))
def test_a_lease_that_is_held_by_another_run_keeps_its_figures(pair: Pipe) -> None:
    """The file is of the run that is at work."""
    pair.run()
    assert pair.config.metrics.textfile is not None
    before = pair.config.metrics.textfile.read_bytes()
    with held(pair.state), pytest.raises(LeaseHeld):
        pair.run()
    assert pair.config.metrics.textfile.read_bytes() == before


@pytest.mark.long("the same on another format", only=("hudi",))
def test_a_source_that_goes_away_before_the_measurement_fails_no_run(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is published by then; the next run measures."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    measure = measuring.Measuring._measure  # noqa: SLF001 - the moment just before the source is asked

    def end_connections(self: measuring.Measuring) -> None:
        with pipe.connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (COPIER,))
            numbers = cursor.fetchall()
        pipe.sql(*(f"KILL {number}" for (number,) in numbers))
        measure(self)

    monkeypatch.setattr(measuring.Measuring, "_measure", end_connections)
    assert pipe.run().caught_up
    assert pipe.seen(Measured) == []
    pipe.assert_equal()
