"""EMR on EC2: a job is a step of a cluster, which runs spark-submit; its driver runs on YARN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster.amazon_jobs import INTERPRETER, AmazonJobs, unzipped
from lakeingest.cluster.request_model import assert_accepted
from lakeingest.cluster.service import YARN_DRIVER, Job, State
from lakeingest.config import amazon
from lakeingest.config.submit import Emr
from lakeingest.errors import Retryable

_KEYS = {"JobFlowId": "submit.emr.cluster_id", "ExecutionRoleArn": "submit.emr.execution_role_arn"}
_ENDED = {"COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED"}


@dataclass(frozen=True, slots=True)
class EmrSteps(AmazonJobs[Emr]):
    """Steps of a cluster."""

    key: ClassVar[str] = Emr.key
    operation: ClassVar[str] = "add_job_flow_steps"

    @property
    def title(self) -> str:
        """The service, its cluster and its region."""
        return f"EMR cluster {self.config.cluster_id} in {self.config.region}"

    def request(self, job: Job) -> dict[str, Any]:
        """A step that runs spark-submit. Its name has the token, because a step has no other field to find it by."""
        settings = {**job.environment(YARN_DRIVER, INTERPRETER), **job.launch, **job.settings}
        words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        first = ["spark-submit", "--deploy-mode", "cluster", "--archives", ",".join(job.unpacked)]
        request: dict[str, Any] = {
            "JobFlowId": self.config.cluster_id,
            "Steps": [
                {
                    "Name": f"lakeingest {job.name} {job.token}",
                    "ActionOnFailure": "CONTINUE",
                    "HadoopJarStep": {
                        "Jar": "command-runner.jar",
                        "Args": [*first, *words, job.entry_point, *job.arguments],
                    },
                }
            ],
        }
        if self.config.execution_role_arn is not None:
            request["ExecutionRoleArn"] = self.config.execution_role_arn
        assert_accepted("emr", "AddJobFlowSteps", request, _KEYS)
        return request

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the step, or find the one of this request. EMR knows no token, so the step is found by its name.

        The request is sent only once: a repeated one would add a second step.
        """
        name = request["Steps"][0]["Name"]
        step_id = self._step(name)
        if step_id is not None:
            return step_id
        try:
            with amazon.translate_errors("EMR does not add the step", _KEYS["JobFlowId"]):
                return str(amazon.client("emr", self.config.region, 1).add_job_flow_steps(**request)["StepIds"][0])
        except Retryable:  # the step may have been added although the answer was lost
            if (step_id := self._step(name)) is not None:
                return step_id
            raise

    def state(self, run: str) -> State:
        """The step's state, as the cluster tells it."""
        status = self._described(run)["Status"]
        reasons = {**status.get("StateChangeReason", {}), **status.get("FailureDetails", {})}
        reason = " ".join(str(reasons[name]) for name in ("Reason", "Message") if reasons.get(name))
        return State(status["State"], status["State"] in _ENDED, status["State"] == "COMPLETED", reason)

    def log(self, run: str) -> str:
        """The output of spark-submit; the driver's own output is among the containers' logs."""
        with amazon.translate_errors(f"EMR says nothing of cluster {self.config.cluster_id}", _KEYS["JobFlowId"]):
            cluster = self._client().describe_cluster(ClusterId=self.config.cluster_id)["Cluster"]
        logs = cluster.get("LogUri")
        if not logs:
            return ""
        place = f"s3://{logs.partition('://')[2].rstrip('/')}/{self.config.cluster_id}/steps/{run}"
        return unzipped(self.folder(place))

    def cancel(self, run: str) -> None:
        """Let EMR send SIGTERM to the step's processes. A step that has ended is left alone."""
        with amazon.translate_errors(f"EMR does not cancel step {run}", _KEYS["JobFlowId"]):
            self._client().cancel_steps(
                ClusterId=self.config.cluster_id, StepIds=[run], StepCancellationOption="SEND_INTERRUPT"
            )

    def _described(self, run: str) -> Any:
        with amazon.translate_errors(f"EMR says nothing of step {run}", _KEYS["JobFlowId"]):
            return self._client().describe_step(ClusterId=self.config.cluster_id, StepId=run)["Step"]

    def _step(self, name: str) -> str | None:
        with amazon.translate_errors(f"EMR does not list the steps of {self.config.cluster_id}", _KEYS["JobFlowId"]):
            pages = self._client().get_paginator("list_steps").paginate(ClusterId=self.config.cluster_id)
            return next((str(step["Id"]) for page in pages for step in page["Steps"] if step["Name"] == name), None)

    def _client(self) -> Any:
        return amazon.client("emr", self.config.region)
