"""EMR Serverless: a job is a job run of an application. boto3's `start_job_run` takes the request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster.amazon_jobs import INTERPRETER, AmazonJobs, unzipped
from lakeingest.cluster.request_model import assert_accepted
from lakeingest.cluster.service import Job, State
from lakeingest.config import amazon
from lakeingest.config.catalogs import SECRETS
from lakeingest.config.submit import EmrServerless
from lakeingest.errors import ConfigError

DRIVER = "spark.emr-serverless.driverEnv"
_KEYS = {
    "applicationId": "submit.emr-serverless.application_id",
    "executionRoleArn": "submit.emr-serverless.execution_role_arn",
    "executionTimeoutMinutes": "submit.emr-serverless.max_minutes",
    "applicationConfiguration": "spark.conf and submit.emr-serverless.secrets",
}
_ENDED = {"SUCCESS", "FAILED", "CANCELLED"}
_LOGS = "logs"


@dataclass(frozen=True, slots=True)
class EmrServerlessJobs(AmazonJobs[EmrServerless]):
    """Jobs of an application."""

    key: ClassVar[str] = EmrServerless.key
    operation: ClassVar[str] = "start_job_run"

    @property
    def title(self) -> str:
        """The service and its region."""
        return f"EMR Serverless in {self.config.region}"

    @property
    def secrets(self) -> Mapping[str, str]:
        """The variables that EMR itself fills in, each with its secret."""
        return self.config.secrets

    def request(self, job: Job) -> dict[str, Any]:
        """The job as arguments of `start_job_run`.

        Settings that Spark needs before it starts are the job's parameters, and all other settings its defaults. EMR
        shows parameters and defaults to everybody who may look at jobs.
        """
        first = {
            "spark.archives": ",".join(job.unpacked),
            f"{DRIVER}.PYSPARK_DRIVER_PYTHON": INTERPRETER,
            **job.environment(DRIVER, INTERPRETER),
            **job.launch,
        }
        secrets = {f"{DRIVER}.{name}": f"EMR.secret@{secret}" for name, secret in self.secrets.items()}
        first |= {key: job.settings[key] for key in first.keys() & job.settings.keys()}
        rest = {key: value for key, value in job.settings.items() if key not in first}
        redaction = {"spark.redaction.regex": f"(?i){SECRETS}|{re.escape(DRIVER)}"}
        request: dict[str, Any] = {
            "applicationId": self.config.application_id,
            "clientToken": job.token,
            "executionRoleArn": self.config.execution_role_arn,
            "name": f"lakeingest {job.name}",
            "tags": {"lakeingest": job.name},
            "jobDriver": {
                "sparkSubmit": {
                    "entryPoint": job.entry_point,
                    "entryPointArguments": list(job.arguments),
                    "sparkSubmitParameters": _parameters(first),
                }
            },
            "configurationOverrides": {
                "applicationConfiguration": [
                    {"classification": "spark-defaults", "properties": redaction | rest | secrets}
                ],
                "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"{self.bucket}/{_LOGS}/"}},
            },
        }
        if self.config.max_minutes is not None:
            request["executionTimeoutMinutes"] = self.config.max_minutes
        assert_accepted("emr-serverless", "StartJobRun", request, _KEYS)
        return request

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, or find the one of this request: the service starts one job for all requests with a token."""
        with amazon.translate_errors("EMR Serverless does not start the job", _KEYS["applicationId"]):
            return str(self._client().start_job_run(**request)["jobRunId"])

    def state(self, run: str) -> State:
        """The job's state, as the service tells it."""
        with amazon.translate_errors(f"EMR Serverless says nothing of job {run}", _KEYS["applicationId"]):
            job = self._client().get_job_run(applicationId=self.config.application_id, jobRunId=run)["jobRun"]
        word = job["state"]
        return State(word, word in _ENDED, word == "SUCCESS", job.get("stateDetails") or "")

    def log(self, run: str) -> str:
        """The driver's output. EMR writes it to S3 while the driver runs, each file as a whole."""
        place = f"{self.bucket}/{_LOGS}/applications/{self.config.application_id}/jobs/{run}/SPARK_DRIVER"
        return unzipped(self.folder(place))

    def cancel(self, run: str) -> None:
        """Let EMR send SIGTERM to the driver. A job that has ended is left alone."""
        try:
            with amazon.translate_errors(f"EMR Serverless does not cancel job {run}", _KEYS["applicationId"]):
                self._client().cancel_job_run(applicationId=self.config.application_id, jobRunId=run)
        except ConfigError:
            if not self.state(run).ended:
                raise

    def _client(self) -> Any:
        return amazon.client("emr-serverless", self.config.region)


def _parameters(settings: Mapping[str, str]) -> str:
    for key, value in settings.items():
        if re.search(r"[\s'\"\\]", value):  # no document says how the service reads quotes
            raise ConfigError(f"spark: {key} may hold no blanks, quotes or backslashes in a job: {value}")
    return " ".join(f"--conf {key}={value}" for key, value in settings.items())
