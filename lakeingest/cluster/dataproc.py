"""Dataproc: a job of a cluster, whose driver runs on YARN; the request is that of Google's `submit_job`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster import google_requests as google
from lakeingest.cluster.objects import on_google
from lakeingest.cluster.service import YARN_DRIVER, Job, State
from lakeingest.config.submit import Dataproc
from lakeingest.files.stored import Stored

_REQUIRED = {
    "project_id": "submit.dataproc.project",
    "region": "submit.dataproc.region",
    "job.placement.cluster_name": "submit.dataproc.cluster",
    "job.pyspark_job.main_python_file_uri": "submit.dataproc.bucket",
}
_ENDED = {"DONE", "ERROR", "CANCELLED"}


@dataclass(frozen=True, slots=True)
class DataprocJobs:
    """Jobs of a cluster; see `Service`."""

    config: Dataproc

    key: ClassVar = Dataproc.key
    operation: ClassVar = "submit_job"
    extra: ClassVar[tuple[str, ...]] = ("google-auth", "requests")
    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # a component of the cluster puts them where Spark looks
    secrets: ClassVar[Mapping[str, str]] = {}

    @property
    def title(self) -> str:
        """The service, its cluster and its region."""
        return f"Dataproc cluster {self.config.cluster} in {self.config.region}"

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
        """The archives are unpacked beside the driver only where it runs on YARN, too."""
        settings = {
            "spark.submit.deployMode": "cluster",
            **job.environment(YARN_DRIVER, None),
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

    def start(self, request: Mapping[str, Any]) -> str:
        """Of requests with one `request_id` the service carries out the first, and the id of the job is ours."""
        from google.api_core.exceptions import Conflict

        with google.named("Dataproc does not start the job", "submit.dataproc"), suppress(Conflict):
            self._client().submit_job(dict(request), timeout=google.SECONDS, retry=None)
        run = str(request["job"]["reference"]["job_id"])
        self._job(run)  # a conflict with something else is none with this job
        return run

    def state(self, run: str) -> State:
        """What the service says."""
        status = self._job(run).status
        return State(status.state.name, status.state.name in _ENDED, status.state.name == "DONE", status.details)

    def log(self, run: str) -> str:
        """What spark-submit printed; the driver's own output is in Cloud Logging."""
        output = self._job(run).driver_output_resource_uri
        if not output:
            return ""
        folder, _, prefix = output.rpartition("/")
        return google.joined(self.folder(folder), prefix)

    def cancel(self, run: str) -> None:
        """The driver is ended; nothing is done when it has ended."""
        with google.named(f"Dataproc does not cancel job {run}", "submit.dataproc"):
            self._client().cancel_job(self._named(run), timeout=google.SECONDS, retry=None)

    def _job(self, run: str) -> Any:
        with google.named(f"Dataproc says nothing of job {run}", "submit.dataproc"):
            return self._client().get_job(self._named(run), **google.limits())

    def _named(self, run: str) -> dict[str, str]:
        return {"project_id": self.config.project, "region": self.config.region, "job_id": run}

    def _client(self) -> Any:
        return google.client("JobControllerClient", self.config.region)
