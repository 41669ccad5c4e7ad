"""Jobs of Dataproc, with and without a cluster: requests by Google's own types, sent by Google's own client.

What answers is no Dataproc: it takes a request where Google's types take it, keeps it, and lets the job go on from
state to state. That a real Dataproc does so, and runs a job, is not proven here.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import dataproc_v1
from google.protobuf import json_format
from typer.testing import CliRunner

from lakeingest.cli import app
from lakeingest.cluster import google_requests
from lakeingest.cluster.dataproc import DataprocJobs
from lakeingest.cluster.dataproc_serverless import DataprocBatches
from lakeingest.cluster.service import Job
from lakeingest.commands import submit as stage
from lakeingest.commands import submitted
from lakeingest.config.submit import Dataproc, DataprocServerless
from lakeingest.errors import ConfigError, OperatorNeeded, Retryable
from tests.servers.answering import answering
from tests.servers.stores import in_memory

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "dataproc.md").read_text()
[PIPELINE] = re.findall(r"^```yml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^lakeingest (submit dataproc.* --wait)$", PAGE, re.MULTILINE)
JOB = Job(
    "shop", "0123abcd" * 4, "gs://b/a.py", ("run",), {"job": "gs://b/j.tar.gz"}, {}, {"spark.executor.cores": "4"}
)
CLUSTER = Dataproc(project="company", region="europe-west1", cluster="lake", bucket="gs://company-lake/jobs")
BATCH = DataprocServerless(project="company", region="europe-west1", runtime="1.2", bucket="gs://company-lake/jobs")
SERVICES = [DataprocJobs(CLUSTER), DataprocBatches(BATCH)]


@dataclass
class Google:
    """What was asked for, the states that come next, and how many answers are lost."""

    jobs: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, Any] = field(default_factory=dict)
    coming: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    lost: int = 0
    status: int = 200

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        """The answer to a request, as a code and a message of Google's types."""
        if self.status != 200:
            return self.status, None
        place, _, query = path.partition("?")
        name = re.split("[/:]", place)[-1]
        if place.endswith("jobs:submit"):
            asked = json_format.Parse(body, dataproc_v1.SubmitJobRequest.pb()())
            return self._made(self.jobs, asked.job.reference.job_id, asked.job)
        if place.endswith("/batches"):
            batch = json_format.Parse(body, dataproc_v1.Batch.pb()())
            batch.operation = "projects/company/regions/europe-west1/operations/o"
            code, _ = self._made(self.batches, str(re.findall(r"batchId=([^&]+)", query)[0]), batch)
            return code, {"name": batch.operation}
        if place.endswith(":cancel"):
            self.cancelled.append(place)
            return 200, next(iter(self.jobs.values()), {})
        kept = self.jobs if "/jobs/" in place else self.batches
        if name not in kept:
            return 404, None
        if self.coming:
            word = self.coming.pop(0)
            if kept is self.jobs:
                kept[name].status.state = getattr(dataproc_v1.JobStatus.State, word)
            else:
                kept[name].state = getattr(dataproc_v1.Batch.State, word)
        return 200, kept[name]

    def _made(self, kept: dict[str, Any], name: str, message: Any) -> tuple[int, Any]:
        if name in kept:
            return 409, None
        kept[name] = message
        if self.lost:
            self.lost -= 1
            return 500, None
        return 200, message


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """What answers Google's client, and a store in memory for Cloud Storage."""
    state = Google()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, message = state.answer(self.path, body)
            plain = {"error": {"code": code, "message": "refused"}} if message is None else message
            text = json.dumps(plain) if isinstance(plain, dict) else json_format.MessageToJson(plain)
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _do  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    bucket = in_memory()
    monkeypatch.setattr(google_requests, "on_google", lambda _: bucket)
    with answering(HTTPServer(("127.0.0.1", 0), Handler)) as server:

        def client(kind: str, region: str) -> Any:
            made = getattr(dataproc_v1, kind)
            host = f"127.0.0.1:{server.server_port}"
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
            transport = made.get_transport_class("rest")
            return made(transport=transport(host=host, url_scheme="http", credentials=nobody))

        monkeypatch.setattr(google_requests, "client", client)
        yield state


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.key)
def test_a_request_is_one_of_googles_types(service: Any) -> None:
    """Google's types take it; Spark's settings, archives and arguments are where Dataproc looks for them."""
    request = service.request(JOB)
    if service.key == "dataproc":
        made = dataproc_v1.SubmitJobRequest(request).job.pyspark_job
        settings, driver = dict(made.properties), "spark.yarn.appMasterEnv"
        assert settings["spark.submit.deployMode"] == "cluster"
    else:
        batch = dataproc_v1.CreateBatchRequest(request).batch
        made, driver = batch.pyspark_batch, "spark.dataproc.driverEnv"
        settings = dict(batch.runtime_config.properties)
        assert re.fullmatch("[a-z0-9-]{4,63}", request["batch_id"])
    assert list(made.archive_uris) == ["gs://b/j.tar.gz#job"]
    assert (made.main_python_file_uri, list(made.args)) == ("gs://b/a.py", ["run"])
    assert settings[f"{driver}.PYTHONPATH"] == settings["spark.executorEnv.PYTHONPATH"] == "./job"
    assert settings[f"{driver}.LAKEINGEST_JOB"] == JOB.token
    assert settings["spark.executor.cores"] == "4"


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (DataprocJobs(CLUSTER.model_copy(update={"project": ""})), "submit.dataproc.project: SubmitJobRequest needs"),
        (DataprocJobs(CLUSTER.model_copy(update={"cluster": ""})), "submit.dataproc.cluster"),
        (DataprocBatches(BATCH.model_copy(update={"runtime": ""})), "submit.dataproc-serverless.runtime"),
        (DataprocBatches(BATCH.model_copy(update={"service_account": 5})), "takes no such request"),
    ],
)
def test_what_google_would_refuse_is_refused_here(service: Any, message: str) -> None:
    """A wrong type by Google's types; a missing value, which they do not notice, by our own list."""
    with pytest.raises(ConfigError, match=message):
        service.request(JOB)


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.key)
def test_a_job_whose_answer_is_lost_is_found(google: Google, service: Any) -> None:
    """Asked again with the same request there is one job."""
    google.lost = 1
    request = service.request(JOB)
    with pytest.raises(Retryable, match="run the same command again"):
        service.start(request)
    assert service.start(request) == f"lakeingest-{JOB.token}"
    assert len(google.jobs) + len(google.batches) == 1


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.key)
@pytest.mark.parametrize(
    ("status", "error"), [(403, OperatorNeeded), (404, ConfigError), (429, Retryable), (503, Retryable)]
)
@pytest.mark.long("each answer to one service in turn", turn="service")
def test_what_google_refuses_is_named(
    google: Google, service: Any, status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who acts depends on the answer. A server that fails is asked again for some seconds."""
    monkeypatch.setattr(google_requests, "_PATIENCE_SECONDS", 0.5)
    google.status = status
    with pytest.raises(error):
        service.state("lakeingest-any")


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.key)
def test_a_job_is_cancelled(google: Google, service: Any) -> None:
    """The job itself, or the operation that made the batch."""
    run = service.start(service.request(JOB))
    service.cancel(run)
    [path] = google.cancelled
    assert path.endswith(f"jobs/{run}:cancel" if service.key == "dataproc" else "operations/o:cancel")


@pytest.mark.long("packs all dependencies of a job")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the archives are for Python 3.11")
@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_is_followed_to_its_exit_code(
    google: Google, pipeline: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, command: str, ends: str
) -> None:
    """The commands of the page, on its pipeline.yml; the code that the job has recorded is that of the command."""
    _, key, _ = command.split()
    state, tokens = in_memory(), []
    monkeypatch.setattr(submitted, "_state_folder", lambda _: state)
    start = submitted.send

    def recorded(submission: stage.Submission, say: Callable[[str], None]) -> str:
        tokens.append(submission.job.token)
        outcome = {"exit": 75, "error": "the source is away"} if ends == "badly" else {"exit": 0, "error": None}
        (state / "last_run.json").put_document({"job": submission.job.token, **outcome})
        return start(submission, say)

    monkeypatch.setattr(submitted, "send", recorded)
    last = ("DONE" if ends == "well" else "ERROR") if key == "dataproc" else "SUCCEEDED" if ends == "well" else "FAILED"
    google.coming = ["PENDING", last]
    path = pipeline(PIPELINE)
    dry = CliRunner().invoke(app, ["submit", key, "--dry-run", "-c", str(path)])
    assert (dry.exit_code, google.jobs, google.batches) == (0, {}, {}), dry.output
    monkeypatch.setattr("lakeingest.commands.submitted.time.sleep", lambda _: None)
    said = CliRunner().invoke(app, [*command.split(), "-c", str(path)])
    assert said.exit_code == (0 if ends == "well" else 75), said.output
    assert f"job lakeingest-{tokens[0]}: {last.lower()}" in said.output
    assert ("the source is away" in said.output) == (ends == "badly")
