"""Dataproc without a cluster: a job is a batch; the request is that of Google's `create_batch`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster import google_requests as google
from lakeingest.cluster.objects import on_google
from lakeingest.cluster.service import Job, State
from lakeingest.config.submit import DataprocServerless
from lakeingest.files.stored import Stored

DRIVER = "spark.dataproc.driverEnv"
_REQUIRED = {
    "parent": "submit.dataproc-serverless.project",
    "batch_id": "name",
    "batch.runtime_config.version": "submit.dataproc-serverless.runtime",
    "batch.pyspark_batch.main_python_file_uri": "submit.dataproc-serverless.bucket",
}
_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}
_KEY = "submit.dataproc-serverless"


@dataclass(frozen=True, slots=True)
class DataprocBatches:
    """Batches of a project and a region; see `Service`."""

    config: DataprocServerless

    key: ClassVar = DataprocServerless.key
    operation: ClassVar = "create_batch"
    extra: ClassVar[tuple[str, ...]] = ("google-auth", "requests")
    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    secrets: ClassVar[Mapping[str, str]] = {}

    @property
    def title(self) -> str:
        """The service and its region."""
        return f"Dataproc Serverless in {self.config.region}"

    @property
    def region(self) -> str:
        """The region of its jobs."""
        return self.config.region

    @property
    def bucket(self) -> str:
        """The folder of uploads."""
        return self.config.bucket.rstrip("/")

    def require_client(self) -> None:
        """OperatorNeeded where Google's client is not installed."""
        google.types()

    def folder(self, uri: str) -> Stored:
        """A folder of Cloud Storage."""
        return on_google(uri)

    def request(self, job: Job) -> dict[str, Any]:
        """The batch and its id, by which it is found again."""
        execution = {
            "service_account": self.config.service_account,
            "subnetwork_uri": self.config.subnetwork,
            "ttl": self.config.max_minutes and {"seconds": self.config.max_minutes * 60},
        }
        request: dict[str, Any] = {
            "parent": f"projects/{self.config.project}/locations/{self.config.region}",
            "batch_id": f"lakeingest-{job.token}",
            "request_id": job.token,
            "batch": {
                "labels": {"lakeingest": job.name.lower()},
                "pyspark_batch": {
                    "main_python_file_uri": job.entry_point,
                    "args": list(job.arguments),
                    "archive_uris": job.unpacked,
                },
                "runtime_config": {
                    "version": self.config.runtime,
                    "properties": {**job.environment(DRIVER, None), **job.launch, **job.settings},
                },
                "environment_config": {
                    "execution_config": {name: value for name, value in execution.items() if value is not None}
                },
            },
        }
        google.assert_accepted("CreateBatchRequest", request, _REQUIRED)
        return request

    def start(self, request: Mapping[str, Any]) -> str:
        """There is one batch of an id."""
        from google.api_core.exceptions import Conflict

        with google.named("Dataproc does not start the batch", _KEY), suppress(Conflict):
            self._client().create_batch(dict(request), timeout=google.SECONDS, retry=None)
        run = str(request["batch_id"])
        self._batch(run)  # a conflict with something else is none with this batch
        return run

    def state(self, run: str) -> State:
        """What the service says."""
        batch = self._batch(run)
        return State(batch.state.name, batch.state.name in _ENDED, batch.state.name == "SUCCEEDED", batch.state_message)

    def log(self, run: str) -> str:
        """The output of the driver."""
        output = self._batch(run).runtime_info.output_uri
        folder, _, prefix = output.rpartition("/")
        return google.joined(self.folder(folder), prefix) if output else ""

    def cancel(self, run: str) -> None:
        """The operation that made the batch is cancelled, and with it the batch."""
        operation = self._batch(run).operation
        with google.named(f"Dataproc does not cancel batch {run}", _KEY):
            self._client().cancel_operation({"name": operation}, timeout=google.SECONDS, retry=None)

    def _batch(self, run: str) -> Any:
        name = f"projects/{self.config.project}/locations/{self.config.region}/batches/{run}"
        with google.named(f"Dataproc says nothing of batch {run}", _KEY):
            return self._client().get_batch({"name": name}, **google.limits())

    def _client(self) -> Any:
        return google.client("BatchControllerClient", self.config.region)
