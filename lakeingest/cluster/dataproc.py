"""Dataproc: a job of a cluster, whose driver runs on YARN. Google's `submit_job` takes the request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster import google_requests as google
from lakeingest.cluster.google_requests import GoogleJobs
from lakeingest.cluster.service import YARN_DRIVER, Job, State
from lakeingest.config.submit import Dataproc

_REQUIRED = {
    "project_id": "submit.dataproc.project",
    "region": "submit.dataproc.region",
    "job.placement.cluster_name": "submit.dataproc.cluster",
    "job.pyspark_job.main_python_file_uri": "submit.dataproc.bucket",
}
_ENDED = {"DONE", "ERROR", "CANCELLED"}


@dataclass(frozen=True, slots=True)
class DataprocJobs(GoogleJobs[Dataproc]):
    """The jobs of a cluster of Dataproc. A component of the cluster gives Spark the jars of the lake formats."""

    key: ClassVar[str] = Dataproc.key
    operation: ClassVar[str] = "submit_job"
    noun: ClassVar[str] = "job"
    api: ClassVar[str] = "JobControllerClient"

    @property
    def title(self) -> str:
        """The service, its cluster and its region."""
        return f"Dataproc cluster {self.config.cluster} in {self.config.region}"

    def request(self, job: Job) -> dict[str, Any]:
        """The job as Google's SubmitJobRequest. The driver runs on YARN, which unpacks the archives beside it."""
        settings = {
            "spark.submit.deployMode": "cluster",
            **job.environment(YARN_DRIVER, None),  # None: the cluster's own Python
            **job.launch,
            **job.settings,
        }
        request: dict[str, Any] = {
            "project_id": self.config.project,
            "region": self.config.region,
            "request_id": job.token,
            "job": {
                "reference": {"job_id": f"lakeingest-{job.token}"},
                "placement": {"cluster_name": self.config.cluster},
                "labels": {"lakeingest": job.name.lower()},
                "pyspark_job": {
                    "main_python_file_uri": job.entry_point,
                    "args": list(job.arguments),
                    "archive_uris": job.unpacked,
                    "properties": settings,
                },
            },
        }
        google.assert_accepted("SubmitJobRequest", request, _REQUIRED)
        return request

    def state(self, run: str) -> State:
        """The job's state."""
        status = self._description(run).status
        return State(status.state.name, status.state.name in _ENDED, status.state.name == "DONE", status.details)

    def cancel(self, run: str) -> None:
        """Cancel the job. If the job has ended, nothing is done."""
        with google.named_errors(f"Dataproc does not cancel job {run}", "submit.dataproc"):
            self._client().cancel_job(self._job_reference(run), timeout=google.SECONDS, retry=None)

    def _job_id(self, request: Mapping[str, Any]) -> str:
        return str(request["job"]["reference"]["job_id"])

    def _description(self, run: str) -> Any:
        with google.named_errors(f"Dataproc says nothing of job {run}", "submit.dataproc"):
            return self._client().get_job(self._job_reference(run), **google.read_options())

    def _output_prefix(self, job: Any) -> str:
        """The prefix of the files with spark-submit's output. The driver's own output is in Cloud Logging."""
        return str(job.driver_output_resource_uri)

    def _job_reference(self, run: str) -> dict[str, str]:
        return {"project_id": self.config.project, "region": self.config.region, "job_id": run}
