"""Events of OpenLineage, on a real web server, and read by OpenLineage's own client."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.monitoring import lineage, webhook
from lakeingest.monitoring.lineage import Lineage, target_dataset
from lakeingest.pipeline.events import (
    Event,
    Merged,
    Opened,
    Published,
    TableStopped,
    Undelivered,
    WaveCommitted,
)
from tests.monitoring.test_webhook import Hook, hook
from tests.servers.engines import Engine

__all__ = ["hook"]  # a fixture

A, B = TableId("shop", "orders"), TableId("shop", 'say "hello" 😀')
# Its classes check what the specification demands of ids, times and URIs.
CLIENT = Engine(
    "OpenLineage's client",
    (
        "openlineage-python==1.54.0",
        *("anyio==4.16.0", "h11==0.16.0", "httpcore2==2.16.2", "httpx2==2.16.2", "truststore==0.10.5"),
    ),
    """
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import error_message_run, job_type_job, parent_run
kinds = {"jobType": job_type_job.JobTypeJobFacet, "errorMessage": error_message_run.ErrorMessageRunFacet}
def facets(doc):
    for name, facet in doc.items():
        facet = {key: value for key, value in facet.items() if not key.startswith("_")}
        if name == "parent":
            parent_run.ParentRunFacet(parent_run.Run(**facet["run"]), parent_run.Job(**facet["job"]))
        else:
            kinds[name](**facet)
for doc in asked["events"]:
    facets(doc["run"]["facets"])
    facets(doc["job"]["facets"])
    RunEvent(
        eventType=RunState[doc["eventType"]], eventTime=doc["eventTime"], run=Run(doc["run"]["runId"]),
        job=Job(doc["job"]["namespace"], doc["job"]["name"]), producer=doc["producer"],
        inputs=[InputDataset(**one) for one in doc["inputs"]],
        outputs=[OutputDataset(**one) for one in doc["outputs"]],
    )
print(len(asked["events"]))
""",
)


def config(folder: Path, url: str, **more: Any) -> Config:
    """A pipeline that tells this server."""
    doc = {"name": "nightly", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    doc |= {"state": str(folder), "notify": {"openlineage": {"url": url, **more}}}
    return parse_config(doc, folder, {})


def telling(hook: Hook, folder: Path, events: list[Event], *, follow: bool = False, **more: Any) -> Lineage:
    """What tells the server about a run, whose observer is this list."""
    known = config(folder, hook.url, **more)
    assert known.notify.openlineage is not None
    return Lineage(known, known.notify.openlineage, events.append, follow=follow)


def copied(table: TableId) -> Iterator[Event]:
    """The events of a table that is copied and published."""
    yield WaveCommitted(table, 1, 2, 10, 3.0, complete=True)
    yield Published(table, 10, "binlog.000001:4", 0.25)


def read(hook: Hook) -> list[dict[str, Any]]:
    """The events that have arrived."""
    return [json.loads(body) for body in hook.bodies]


def shown(docs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Kind and job of each event."""
    return [(doc["eventType"], doc["job"]["name"]) for doc in docs]


def test_each_table_is_a_job_with_one_input_and_one_output(hook: Hook, tmp_path: Path) -> None:
    """Below the job of the pipeline; a table that stops fails alone, and begins again with its next publish."""
    events = list[Event]()
    told = telling(hook, tmp_path, events, namespace="data team")
    stopped = TableStopped(B, GateFailed("row 17 has se-cret"))
    said = [Opened(2, 0.1), *copied(A), *copied(B), stopped, TableStopped(A, GateFailed(""), again=True), *copied(B)]
    for event in said:
        told.observe(event)
    told.end(1, "GateFailed", whole=False)
    assert events == said
    docs = read(hook)
    a, b = "nightly.shop.orders", 'nightly.shop.say "hello" 😀'
    assert shown(docs) == [
        ("START", "nightly"),
        ("START", a),
        ("START", b),
        ("FAIL", b),
        ("START", b),
        ("COMPLETE", a),
        ("COMPLETE", b),
        ("FAIL", "nightly"),
    ]
    assert {doc["job"]["namespace"] for doc in docs} == {"data team"}
    numbers = {(doc["job"]["name"], doc["run"]["runId"]) for doc in docs}
    assert sorted(name for name, _ in numbers) == sorted(["nightly", a, b, b])
    for doc in docs:
        if doc["job"]["name"] == "nightly":
            assert (doc["inputs"], doc["outputs"], "parent" in doc["run"]["facets"]) == ([], [], False)
            continue
        assert doc["run"]["facets"]["parent"]["run"]["runId"] == docs[0]["run"]["runId"]
        name = doc["job"]["name"].removeprefix("nightly.")
        assert doc["inputs"] == [{"namespace": "mysql://127.0.0.1:3306", "name": name}]
        assert doc["outputs"] == [{"namespace": (tmp_path / "warehouse").as_uri(), "name": name}]
    failed = docs[3]["run"]["facets"]["errorMessage"]
    assert failed["message"] == "GateFailed: `lakeingest explain GateFailed` says what to do"
    assert "se-cret" not in "".join(hook.bodies)
    assert docs[0]["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_the_own_client_takes_every_event(hook: Hook, tmp_path: Path) -> None:
    """So ids, times and URIs are as the specification wants them, and so are the parts of events."""
    told = telling(hook, tmp_path, [], follow=True)
    for event in (Opened(2, 0.1), *copied(A), TableStopped(B, GateFailed("why"))):
        told.observe(event)
    told.end(130, "InternalError", whole=True)
    docs = read(hook)
    assert shown(docs)[-2:] == [("ABORT", "nightly.shop.orders"), ("ABORT", "nightly")]
    assert CLIENT.run({"events": docs}) == f"{len(docs)}\n"


@pytest.mark.parametrize(
    ("code", "error", "whole", "ends"),
    [
        (0, "", False, ["COMPLETE", "ABORT", "COMPLETE"]),
        (75, "SourceAway", True, ["FAIL", "FAIL", "FAIL"]),
        (130, "InternalError", True, ["ABORT", "ABORT", "ABORT"]),
    ],
)
def test_the_end_of_a_run_is_that_of_its_tables(
    hook: Hook,
    tmp_path: Path,
    code: int,
    error: str,
    whole: bool,  # noqa: FBT001 - of a test
    ends: list[str],
) -> None:
    """A table that was not published has not ended well."""
    told = telling(hook, tmp_path, [])
    for event in (Opened(2, 0.1), *copied(A), Merged(B, 9, 6, 3, 2, 1, 0.5)):
        told.observe(event)
    told.end(code, error, whole=whole)
    assert [kind for kind, _ in shown(read(hook))[-3:]] == ends


def test_a_run_that_ends_before_it_opens_has_begun_all_the_same(hook: Hook, tmp_path: Path) -> None:
    """With its key, and nothing about tables."""
    told = telling(hook, tmp_path, [], api_key="se-cret")
    told.end(75, "SourceAway", whole=True)
    assert shown(read(hook)) == [("START", "nightly"), ("FAIL", "nightly")]
    assert hook.keys == {"Bearer se-cret"}


def test_events_wait_for_a_server_that_is_away_and_hold_no_run_up(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning says so, without the URL; what has not arrived comes later, in its order."""
    monkeypatch.setattr(lineage, "AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(webhook, "ANSWER_SECONDS", 0.2)
    hook.answers = [-1, -1, -1, 404, 200]
    events = list[Event]()
    told = telling(hook, tmp_path, events, follow=True)
    began = time.monotonic()
    told.observe(Opened(2, 0.1))
    for event in copied(A):
        told.observe(event)
    assert time.monotonic() - began < 0.2
    for arrived in (6, 7):
        while len(hook.bodies) < arrived:
            told.observe(Published(A, 7, "binlog.000001:4", 0.25))
            assert time.monotonic() - began < 20
            time.sleep(0.01)
        told.observe(TableStopped(A, GateFailed("why")))
    told.end(0, "", whole=False)
    a = "nightly.shop.orders"
    once = [("START", "nightly"), ("START", a), ("FAIL", a), ("START", a), ("FAIL", a), ("COMPLETE", "nightly")]
    assert shown(read(hook)[4:]) == once
    reasons = [event.reason for event in events if isinstance(event, Undelivered)]
    assert reasons == ["OSError: TimeoutError", "OSError: the server answers 404"]


@pytest.mark.parametrize(
    ("target", "dataset"),
    [
        ({}, ("file:///shop/warehouse", "shop.orders")),
        ({"format": "hudi"}, ("file:///shop/warehouse", "shop.orders")),
        ({"warehouse": "s3://lake/w", "table": "raw.{database}_{table}"}, ("s3://lake/w", "raw.shop_orders")),
        ({"catalog": {"type": "rest", "uri": "https://rest/api"}}, ("https://rest/api", "shop.orders")),
        ({"catalog": {"type": "hive", "uri": "thrift://a:9083,thrift://b:9083"}}, ("hive://a:9083", "shop.orders")),
        (
            {"catalog": {"type": "sql", "uri": "postgresql://us:se-cret@db:5432/lake"}},
            ("postgresql://db:5432/lake", "shop.orders"),
        ),
    ],
)
def test_a_copy_has_the_name_that_others_know(target: dict[str, Any], dataset: tuple[str, str]) -> None:
    """That in its catalog, without a password."""
    if str(target.get("warehouse", "")).startswith("s3"):
        target = target | {"catalog": {"type": "glue"}}
    doc = {"name": "nightly", "source": {"host": "db", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    known = parse_config(doc | {"target": target}, Path("/shop"), {})
    assert target_dataset(known.target, A) == dict(zip(("namespace", "name"), dataset, strict=True))
