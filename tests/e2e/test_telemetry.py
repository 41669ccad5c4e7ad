"""Spans and events of lineage of real runs, on real receivers: each piece of work, each table, each failure."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeingest.config import Quality
from lakeingest.config.metrics import Metrics
from lakeingest.config.notify import Notify, OpenLineage
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.pipeline.events import Undelivered
from tests.e2e.pipe import Pipe
from tests.e2e.test_monitoring import CHEAP, ODD, options, server

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(pipe: Pipe, tmp_path: Path) -> Pipe:
    """Two tables, one with a name that is not plain, and a suite for the other."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.t.yml").write_text(CHEAP)
    options(pipe, quality=Quality(suites=Place.of(suites)))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", f"CREATE TABLE `{ODD}` (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO t VALUES (1, 1), (2, 2)", f"INSERT INTO `{ODD}` VALUES (1)")
    return pipe


@pytest.mark.long("a collector and whole runs; tests/monitoring/test_telemetry sends each of them")
def test_opentelemetry_gets_the_spans_and_metrics_of_a_run(pair: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is late or lost at the end of a run, which goes on although nobody listens."""
    pytest.importorskip("opentelemetry.sdk", reason="without the extra otel")
    from tests.servers.collector import attributes_of, collector

    t, odd = f"{pair.database}.t", f"{pair.database}.{ODD}"
    options(pair, metrics=Metrics(opentelemetry=True))
    with collector() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        pair.run()
        assert receiver.values("lakeingest_rows") == {t: 2, odd: 1}
        assert receiver.values("lakeingest_run_exit_code") == {"": 0}
        tables = {attributes_of(span)["lakeingest.table"] for span in receiver.named("publish")}
        assert tables == {t, odd}
        [run] = receiver.named("run")
        assert {span.parent_span_id for span in receiver.spans} == {run.span_id, b""}
        assert all(run.start_time_unix_nano <= span.start_time_unix_nano for span in receiver.spans)
        assert all(span.end_time_unix_nano <= run.end_time_unix_nano for span in receiver.spans)
        receiver.spans.clear()
        pair.sql("UPDATE t SET v = 1000 WHERE id = 1")
        with pytest.raises(GateFailed):
            pair.run()
        [run] = receiver.named("run")
        assert run.status.message == "GateFailed"
        [stopped] = run.events
        assert attributes_of(stopped) == {"lakeingest.table": t, "lakeingest.error": "GateFailed"}
        assert receiver.values("lakeingest_table_failed") == {t: 1, odd: 0}
    assert pair.seen(Undelivered) == []
    pair.sql("UPDATE t SET v = 10 WHERE id = 1")
    pair.run()
    [event] = pair.seen(Undelivered)
    assert isinstance(event, Undelivered)
    assert (event.what, event.reason) == ("metrics.opentelemetry", "OSError: the collector does not answer")


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_lineage_names_what_each_table_is_made_from(pair: Pipe) -> None:
    """A table that fails is told, and a table without changes is not."""
    t, odd = f"{pair.database}.t", f"{pair.database}.{ODD}"
    with server(lambda _: 200) as (url, requests):
        options(pair, notify=Notify(openlineage=OpenLineage(url=f"{url}/api/v1/lineage", api_key=SecretStr("k"))))
        pair.run()
        docs = [json.loads(body) for *_, body in requests]
        assert {(path, key) for path, key, _ in requests} == {("POST /api/v1/lineage", "Bearer k")}
        requests.clear()
        pair.sql("UPDATE t SET v = 1000 WHERE id = 1")
        with pytest.raises(GateFailed):
            pair.run()
        failed = [json.loads(body) for *_, body in requests]
    name = pair.config.name
    told = sorted((doc["eventType"], doc["job"]["name"]) for doc in docs)
    jobs = [name, f"{name}.{t}", f"{name}.{odd}"]
    assert told == sorted((kind, job) for kind in ("START", "COMPLETE") for job in jobs)
    source = pair.config.source
    made = {doc["inputs"][0]["name"]: doc["outputs"][0]["name"] for doc in docs if doc["inputs"]}
    assert made == {table: ".".join(pair.config.target.identifier(TableId.parse(table))) for table in (t, odd)}
    assert {one["namespace"] for doc in docs for one in doc["inputs"]} == {f"mysql://{source.host}:{source.port}"}
    told = [(doc["eventType"], doc["job"]["name"]) for doc in failed]
    assert told == [("START", name), ("START", f"{name}.{t}"), ("FAIL", f"{name}.{t}"), ("FAIL", name)]
    assert failed[-1]["run"]["facets"]["errorMessage"]["message"].startswith("GateFailed")
