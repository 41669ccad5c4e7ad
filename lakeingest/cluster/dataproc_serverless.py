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
    """The batches of a project in a region. Each batch runs one job."""

    key: ClassVar[str] = DataprocServerless.key
    operation: ClassVar[str] = "create_batch"
    noun: ClassVar[str] = "batch"
    api: ClassVar[str] = "BatchControllerClient"

    @property
    def title(self) -> str:
        """The service and its region."""
        return f"Dataproc Serverless in {self.config.region}"

    def request(self, job: Job) -> dict[str, Any]:
        """The job as Google's CreateBatchRequest. The batch's id has the job's token."""
        execution = {
            "service_account": self.config.service_account,
            "subnetwork_uri": self.config.subnetwork,
            "ttl": None if self.config.max_minutes is None else {"seconds": self.config.max_minutes * 60},
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
                # `None` in the environment: the service's own Python
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
        """The batch's state."""
        batch = self._description(run)
        return State(batch.state.name, batch.state.name in _ENDED, batch.state.name == "SUCCEEDED", batch.state_message)

    def cancel(self, run: str) -> None:
        """Cancel the operation that created the batch, which cancels the batch."""
        operation = self._description(run).operation
        with google.named_errors(f"Dataproc does not cancel batch {run}", _KEY):
            self._client().cancel_operation({"name": operation}, timeout=google.SECONDS, retry=None)

    def _job_id(self, request: Mapping[str, Any]) -> str:
        return str(request["batch_id"])

    def _description(self, run: str) -> Any:
        name = f"projects/{self.config.project}/locations/{self.config.region}/batches/{run}"
        with google.named_errors(f"Dataproc says nothing of batch {run}", _KEY):
            return self._client().get_batch({"name": name}, **google.read_options())

    def _output_prefix(self, job: Any) -> str:
        return str(job.runtime_info.output_uri)
