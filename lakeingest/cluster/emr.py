"""EMR on EC2: a job is a step of a cluster. The step runs spark-submit, and the job's driver runs on YARN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster.amazon_jobs import INTERPRETER, AmazonJobs, driver_output
from lakeingest.cluster.request_model import assert_accepted
from lakeingest.cluster.service import YARN_DRIVER, Job, State
from lakeingest.config import amazon
from lakeingest.config.submit import Emr
from lakeingest.errors import Retryable

_KEYS = {"JobFlowId": "submit.emr.cluster_id", "ExecutionRoleArn": "submit.emr.execution_role_arn"}
_ENDED = {"COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED"}


@dataclass(frozen=True, slots=True)
class EmrSteps(AmazonJobs[Emr]):
    """The steps of a cluster of EMR. Each step runs one job."""

    key: ClassVar[str] = Emr.key
    operation: ClassVar[str] = "add_job_flow_steps"

    @property
    def title(self) -> str:
        """The service, its cluster and its region."""
        return f"EMR cluster {self.config.cluster_id} in {self.config.region}"

    def request(self, job: Job) -> dict[str, Any]:
        """The arguments of `add_job_flow_steps` for a step that runs spark-submit.

        The step's name has the job's token, because a step has no other field by which it could be found.
        """
        settings = {**job.environment(YARN_DRIVER, INTERPRETER), **job.launch, **job.settings}
        conf_options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        command = ["spark-submit", "--deploy-mode", "cluster", "--archives", ",".join(job.unpacked)]
        request: dict[str, Any] = {
            "JobFlowId": self.config.cluster_id,
            "Steps": [
                {
                    "Name": f"lakeingest {job.name} {job.token}",
                    "ActionOnFailure": "CONTINUE",  # a failed step ends neither the cluster nor other steps
                    "HadoopJarStep": {
                        "Jar": "command-runner.jar",
                        "Args": [*command, *conf_options, job.entry_point, *job.arguments],
                    },
                }
            ],
        }
        if self.config.execution_role_arn is not None:
            request["ExecutionRoleArn"] = self.config.execution_role_arn
        assert_accepted("emr", "AddJobFlowSteps", request, _KEYS)
        return request

    def start(self, request: Mapping[str, Any]) -> str:
        """Add the step, and return its id. If the cluster has a step with this name already, only its id is returned.

        The request is sent only once: EMR knows no token, so a repeated request would add a second step.
        """
        name = request["Steps"][0]["Name"]
        step_id = self._step_id(name)
        if step_id is not None:
            return step_id
        try:
            with amazon.translate_errors("EMR does not add the step", _KEYS["JobFlowId"]):
                client = amazon.client("emr", self.config.region, tries=1)
                return str(client.add_job_flow_steps(**request)["StepIds"][0])
        except Retryable:  # perhaps the step was added, and only the answer was lost
            if (step_id := self._step_id(name)) is not None:
                return step_id
            raise

    def state(self, run: str) -> State:
        """The step's state, with EMR's reasons for it."""
        status = self._description(run)["Status"]
        reasons = {**status.get("StateChangeReason", {}), **status.get("FailureDetails", {})}
        reason = " ".join(str(reasons[name]) for name in ("Reason", "Message") if reasons.get(name))
        return State(status["State"], status["State"] in _ENDED, status["State"] == "COMPLETED", reason)

    def log(self, run: str) -> str:
        """The output of spark-submit. The driver's own output is in the logs of YARN's containers."""
        with amazon.translate_errors(f"EMR says nothing of cluster {self.config.cluster_id}", _KEYS["JobFlowId"]):
            cluster = self._client().describe_cluster(ClusterId=self.config.cluster_id)["Cluster"]
        logs = cluster.get("LogUri")
        if not logs:
            return ""
        # the scheme of `logs` can be another one, such as s3n
        uri = f"s3://{logs.partition('://')[2].rstrip('/')}/{self.config.cluster_id}/steps/{run}"
        return driver_output(self.folder(uri))

    def cancel(self, run: str) -> None:
        """Let EMR send SIGTERM to the step's processes. If the step has ended, nothing is done."""
        with amazon.translate_errors(f"EMR does not cancel step {run}", _KEYS["JobFlowId"]):
            self._client().cancel_steps(
                ClusterId=self.config.cluster_id, StepIds=[run], StepCancellationOption="SEND_INTERRUPT"
            )

    def _description(self, run: str) -> Any:
        """EMR's description of a step."""
        with amazon.translate_errors(f"EMR says nothing of step {run}", _KEYS["JobFlowId"]):
            return self._client().describe_step(ClusterId=self.config.cluster_id, StepId=run)["Step"]

    def _step_id(self, name: str) -> str | None:
        """The id of the cluster's step with this name; None if there is no such step."""
        with amazon.translate_errors(f"EMR does not list the steps of {self.config.cluster_id}", _KEYS["JobFlowId"]):
            pages = self._client().get_paginator("list_steps").paginate(ClusterId=self.config.cluster_id)
            steps = (step for page in pages for step in page["Steps"])
            return next((str(step["Id"]) for step in steps if step["Name"] == name), None)

    def _client(self) -> Any:
        return amazon.client("emr", self.config.region)
