"""A job of EMR Serverless: the arguments of boto3's `start_job_run`, checked offline against its model."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakeingest.cluster.archive import PROCESSOR, PYTHON
from lakeingest.config.submit import EmrServerless
from lakeingest.errors import ConfigError, OperatorNeeded

# Where the interpreter is on Amazon Linux 2023; EMR has it beside its own 3.9 since 7.1.
INTERPRETER = f"/usr/bin/python{PYTHON}"
DRIVER = "spark.emr-serverless.driverEnv"
EXECUTOR = "spark.executorEnv"
# The keys of pipeline.yml that have a name of their own in the request.
_KEYS = {
    "applicationId": "submit.emr-serverless.application_id",
    "executionRoleArn": "submit.emr-serverless.execution_role_arn",
    "executionTimeoutMinutes": "submit.emr-serverless.max_minutes",
    "applicationConfiguration": "spark.conf and submit.emr-serverless.secrets",
}


def job_request(
    name: str,
    service: EmrServerless,
    entry_point: str,
    arguments: Sequence[str],
    archives: Mapping[str, str],
    launch: Mapping[str, str],
    settings: Mapping[str, str],
    token: str,
) -> dict[str, Any]:
    """The request that runs `entry_point` with its arguments, on Python files from `archives` (folder -> URI).

    `launch` is what Spark has to know before it starts, `settings` what it has to know at all; `settings` win. `token`:
    the service starts one job, however often it is asked with the same one. ConfigError names the key that the service
    would refuse; OperatorNeeded without boto3.
    """
    path = ":".join(f"./{folder}" for folder in archives)
    first = {
        "spark.archives": ",".join(f"{uri}#{folder}" for folder, uri in archives.items()),
        f"{DRIVER}.PYSPARK_DRIVER_PYTHON": INTERPRETER,
        f"{DRIVER}.PYSPARK_PYTHON": INTERPRETER,
        f"{DRIVER}.PYTHONPATH": path,
        f"{EXECUTOR}.PYSPARK_PYTHON": INTERPRETER,
        f"{EXECUTOR}.PYTHONPATH": path,
        f"{DRIVER}.NUMBA_CPU_NAME": PROCESSOR,
        f"{EXECUTOR}.NUMBA_CPU_NAME": PROCESSOR,
        **launch,
    }
    secrets = {f"{DRIVER}.{variable}": f"EMR.secret@{secret}" for variable, secret in service.secrets.items()}
    first |= {key: settings[key] for key in first.keys() & settings.keys()}
    request: dict[str, Any] = {
        "applicationId": service.application_id,
        "clientToken": token,
        "executionRoleArn": service.execution_role_arn,
        "name": f"lakeingest {name}",
        "tags": {"lakeingest": name},
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": entry_point,
                "entryPointArguments": list(arguments),
                "sparkSubmitParameters": _parameters(first),
            }
        },
        "configurationOverrides": {
            "applicationConfiguration": [
                {
                    "classification": "spark-defaults",
                    "properties": {key: value for key, value in settings.items() if key not in first} | secrets,
                }
            ]
        },
    }
    if service.max_minutes is not None:
        request["executionTimeoutMinutes"] = service.max_minutes
    _assert_accepted(request)
    return request


def _parameters(settings: Mapping[str, str]) -> str:
    for key, value in settings.items():
        if re.search(r"[\s'\"\\]", value):  # how the service reads quotes is written nowhere
            raise ConfigError(f"spark: {key} may hold no blanks, quotes or backslashes in a job: {value}")
    return " ".join(f"--conf {key}={value}" for key, value in settings.items())


def _assert_accepted(request: Mapping[str, Any]) -> None:
    try:
        from botocore.session import Session  # type: ignore[import-untyped]
        from botocore.validate import ParamValidator  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: pip install 'lakeingest[aws]'") from error

    shape = Session().get_service_model("emr-serverless").operation_model("StartJobRun").input_shape
    report = ParamValidator().validate(request, shape)
    wrong = report.generate_report().splitlines() if report.has_errors() else list(_wrong(shape, request))
    if wrong:
        reasons = "; ".join(wrong)
        keys = [key for parameter, key in _KEYS.items() if parameter in reasons]
        raise ConfigError(f"{' and '.join(keys) or 'the job'}: EMR Serverless takes no such request: {reasons}")


def _wrong(shape: Any, request: Mapping[str, Any]) -> Iterator[str]:
    """What botocore's validator leaves to the service: how long texts may be, and their form."""
    for at, form, text in _texts(shape, request, ""):
        if len(text) > form.get("max", len(text)):
            yield f"{at.lstrip('.')} is longer than {form['max']}"
        elif "pattern" in form and not re.fullmatch(form["pattern"], text, re.DOTALL):
            yield f"{at.lstrip('.')} is not of the form {form['pattern']}"


def _texts(shape: Any, value: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    match shape.type_name:
        case "string":
            yield at, shape.metadata, value
        case "structure":
            for name, member in value.items():
                yield from _texts(shape.members[name], member, f"{at}.{name}")
        case "list":
            for member in value:
                yield from _texts(shape.member, member, at)
        case "map":
            for key, member in value.items():
                yield at, shape.key.metadata, key
                yield from _texts(shape.value, member, f"{at}.{key}")
