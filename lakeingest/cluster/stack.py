"""The stack of CloudFormation that a pipeline has on EMR Serverless, and the stack of its schedule.

The first one has the application, the role of its jobs, and the secret and the bucket if they are to be made. The
second one needs a job's request, so it comes later.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakeingest.cluster.templates import OPEN
from lakeingest.config import amazon

# The states of a complete stack. After the last one, a failed update has left the stack as it was before the update
_MADE = ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"]
_PLAIN = re.compile(r"([a-z0-9_]+)\..+")  # a pattern of tables whose database is a name that Glue takes as it is
OUTPUTS = {"ApplicationId": "application_id", "ExecutionRoleArn": "execution_role_arn"}  # with the keys of pipeline.yml


def stack_name(pipeline: str) -> str:
    """The name of the pipeline's stack. CloudFormation takes no underscores."""
    return f"lakeingest-{pipeline.replace('_', '-')}"


def stack_parameters(pipeline: str, bucket: str, include: Sequence[str], *, has_secret: bool) -> str:
    """The file of parameters of the stack. OPEN stands for each value that the pipeline does not say.

    `bucket` is a name, and `include` are the patterns of the tables. `has_secret`: the password is in a secret already.
    """
    matches = map(_PLAIN.fullmatch, include)
    databases = {OPEN if match is None else match[1] for match in matches}
    return _file(
        {
            "Name": pipeline,
            "Bucket": bucket,
            "MakeBucket": "no",
            "Secret": OPEN if has_secret else "",  # "": the stack makes one
            "GlueDatabases": databases.pop() if len(databases) == 1 else OPEN,
            "Vpc": OPEN,
            "Subnets": OPEN,
        }
    )


def schedule_parameters(pipeline: str, request: Mapping[str, Any]) -> str:
    """The file of parameters of the schedule. It starts the job of `request`, which is a request of `start_job_run`."""
    driver, overrides = request["jobDriver"]["sparkSubmit"], request["configurationOverrides"]
    parameters = {
        "Name": pipeline,
        "ApplicationId": request["applicationId"],
        "ExecutionRoleArn": request["executionRoleArn"],
        "EntryPoint": driver["entryPoint"],
        "SparkSubmitParameters": driver["sparkSubmitParameters"],
        "SparkDefaults": json.dumps(overrides["applicationConfiguration"][0]["properties"]),  # the only item
        "LogUri": overrides["monitoringConfiguration"]["s3MonitoringConfiguration"]["logUri"],
        "Schedule": "rate(1 hour)",
        "Email": OPEN,
    }
    if "executionTimeoutMinutes" in request:
        parameters["MaxMinutes"] = str(request["executionTimeoutMinutes"])
    return _file(parameters)


def _file(parameters: Mapping[str, str]) -> str:
    """Parameters in the one form that `aws cloudformation deploy` takes from a file in both its versions, 1 and 2."""
    return json.dumps([f"{name}={value}" for name, value in parameters.items()], indent=2, ensure_ascii=False) + "\n"


def read_parameters(text: str) -> dict[str, str]:
    """The parameters in a file, by their names."""
    return dict(one.split("=", 1) for one in json.loads(text))


def stack_outputs(name: str, region: str) -> dict[str, str] | None:
    """The values of the stack for `submit.emr-serverless`, by their keys; None if there is no such stack.

    A stack that is being made, or could not be made, counts as none. Raises the errors of `amazon.translate_errors`.
    """
    doing = f"CloudFormation says nothing of the stack {name}"
    client = amazon.client("cloudformation", region)
    with amazon.translate_errors(doing):
        pages = client.get_paginator("list_stacks").paginate(StackStatusFilter=_MADE)
        found = [stack for page in pages for stack in page["StackSummaries"] if stack["StackName"] == name]
        if not found:
            return None
        [stack] = client.describe_stacks(StackName=found[0]["StackId"])["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    return {OUTPUTS[output]: value for output, value in outputs.items() if output in OUTPUTS}
