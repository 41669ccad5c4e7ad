"""EMR Serverless: a job is a job run of an application. boto3's `start_job_run` takes the request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster.amazon_jobs import INTERPRETER, AmazonJobs, driver_output
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
    """The job runs of an application of EMR Serverless."""

    key: ClassVar[str] = EmrServerless.key
    operation: ClassVar[str] = "start_job_run"

    @property
    def title(self) -> str:
        """The service and its region."""
        return f"EMR Serverless in {self.config.region}"

    @property
    def secrets(self) -> Mapping[str, str]:
        """The environment variables that EMR sets for the driver, each with the secret that has its value."""
        return self.config.secrets

    def request(self, job: Job) -> dict[str, Any]:
        """The job as the arguments of `start_job_run`.

        Settings that Spark needs before it starts are passed to spark-submit. All other settings are the job's
        `spark-defaults`. EMR shows both to everybody who is allowed to see jobs.
        """
        submit_settings = {
            "spark.archives": ",".join(job.unpacked),
            f"{DRIVER}.PYSPARK_DRIVER_PYTHON": INTERPRETER,
            **job.environment(DRIVER, INTERPRETER),
            **job.launch,
        }
        secrets = {f"{DRIVER}.{name}": f"EMR.secret@{secret}" for name, secret in self.secrets.items()}
        # the user's values of these settings override ours
        submit_settings |= {key: job.settings[key] for key in submit_settings.keys() & job.settings.keys()}
        other_settings = {key: value for key, value in job.settings.items() if key not in submit_settings}
        # with this pattern, Spark hides the values of the driver's environment variables, too
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
                    "sparkSubmitParameters": _submit_parameters(submit_settings),
                }
            },
            "configurationOverrides": {
                "applicationConfiguration": [
                    {"classification": "spark-defaults", "properties": redaction | other_settings | secrets}
                ],
                "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"{self.bucket}/{_LOGS}/"}},
            },
        }
        if self.config.max_minutes is not None:
            request["executionTimeoutMinutes"] = self.config.max_minutes
        assert_accepted("emr-serverless", "StartJobRun", request, _KEYS)
        return request

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, and return its id. EMR starts one job for all requests with the same token."""
        with amazon.translate_errors("EMR Serverless does not start the job", _KEYS["applicationId"]):
            return str(self._client().start_job_run(**request)["jobRunId"])

    def state(self, run: str) -> State:
        """The job's state."""
        with amazon.translate_errors(f"EMR Serverless says nothing of job {run}", _KEYS["applicationId"]):
            job = self._client().get_job_run(applicationId=self.config.application_id, jobRunId=run)["jobRun"]
        word = job["state"]
        return State(word, word in _ENDED, word == "SUCCESS", job.get("stateDetails") or "")

    def log(self, run: str) -> str:
        """The driver's output. While the driver runs, EMR writes the whole files to S3 again and again."""
        uri = f"{self.bucket}/{_LOGS}/applications/{self.config.application_id}/jobs/{run}/SPARK_DRIVER"
        return driver_output(self.folder(uri))

    def cancel(self, run: str) -> None:
        """Let EMR send SIGTERM to the driver. If the job has ended, nothing is done."""
        try:
            with amazon.translate_errors(f"EMR Serverless does not cancel job {run}", _KEYS["applicationId"]):
                self._client().cancel_job_run(applicationId=self.config.application_id, jobRunId=run)
        except ConfigError:  # EMR also refuses to cancel a job that has ended
            if not self.state(run).ended:
                raise

    def _client(self) -> Any:
        return amazon.client("emr-serverless", self.config.region)


def _submit_parameters(settings: Mapping[str, str]) -> str:
    """The settings as options of spark-submit. Raises ConfigError for a value with blanks, quotes or backslashes."""
    for key, value in settings.items():
        if re.search(r"[\s'\"\\]", value):  # no document says how the service reads quotes
            raise ConfigError(f"spark: {key} may hold no blanks, quotes or backslashes in a job: {value}")
    return " ".join(f"--conf {key}={value}" for key, value in settings.items())
