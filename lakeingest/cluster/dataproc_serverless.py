"""Dataproc without a cluster: a job is a batch. Google's `create_batch` takes the request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster import google_requests as google
from lakeingest.cluster.google_requests import GoogleJobs
from lakeingest.cluster.service import Job, State
from lakeingest.config.submit import DataprocServerless

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
class DataprocBatches(GoogleJobs[DataprocServerless]):
    """Batches of a project and a region."""

    key: ClassVar[str] = DataprocServerless.key
    operation: ClassVar[str] = "create_batch"
    noun: ClassVar[str] = "batch"
    api: ClassVar[str] = "BatchControllerClient"

    @property
    def title(self) -> str:
        """The service and its region."""
        return f"Dataproc Serverless in {self.config.region}"

    def request(self, job: Job) -> dict[str, Any]:
        """The batch as Google's CreateBatchRequest, with an id by which it is found again."""
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

    def state(self, run: str) -> State:
        """The batch's state, as the service tells it."""
        batch = self._found(run)
        return State(batch.state.name, batch.state.name in _ENDED, batch.state.name == "SUCCEEDED", batch.state_message)

    def cancel(self, run: str) -> None:
        """Cancel the operation that made the batch, and so the batch."""
        operation = self._found(run).operation
        with google.named(f"Dataproc does not cancel batch {run}", _KEY):
            self._client().cancel_operation({"name": operation}, timeout=google.SECONDS, retry=None)

    def _run(self, request: Mapping[str, Any]) -> str:
        return str(request["batch_id"])

    def _found(self, run: str) -> Any:
        name = f"projects/{self.config.project}/locations/{self.config.region}/batches/{run}"
        with google.named(f"Dataproc says nothing of batch {run}", _KEY):
            return self._client().get_batch({"name": name}, **google.limits())

    def _output(self, job: Any) -> str:
        return str(job.runtime_info.output_uri)
