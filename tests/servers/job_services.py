"""EMR Serverless and EMR as moto has them, but jobs run: moto takes jobs, and runs none.

Run it as a program, with the port. A job is run as the image of EMR runs it: spark-submit, with a Python that has no
packages but Spark's, in a folder where the archives are unpacked. Everything is fetched from S3; logs are put there.
While the file that LOSE_ANSWERS names holds a number, so many starts are answered with an error although they are done.
"""

import gzip
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.emr import models as emr
from moto.emrserverless import models as serverless
from moto.glue import models as glue
from moto.glue import responses
from moto.server import main

from lakeingest.spark.session import java_home
from tests.servers import strict_glue

SPARK = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
DRIVER = "spark.emr-serverless.driverEnv."
YARN = "spark.yarn.appMasterEnv."
_start, _cancel = serverless.EMRServerlessBackend.start_job_run, serverless.EMRServerlessBackend.cancel_job_run
_add_steps = emr.ElasticMapReduceBackend.add_job_flow_steps
_processes: dict[str, subprocess.Popen[bytes]] = {}
_started: dict[str, Any] = {}
_lock = threading.RLock()


def start_job_run(backend: Any, application_id: str, client_token: str, *given: Any, **more: Any) -> Any:
    """One job for each token, as the service has it; moto starts one for each request."""
    with _lock:
        if client_token not in _started:
            job = _started[client_token] = _start(backend, application_id, client_token, *given, **more)
            job.state = "SUBMITTED"
            threading.Thread(target=_run_job, args=(job,), daemon=True).start()
    _maybe_lose()
    return _started[client_token]


def cancel_job_run(backend: Any, application_id: str, job_run_id: str) -> Any:
    """The job's processes get SIGTERM."""
    answer = _cancel(backend, application_id, job_run_id)
    if job_run_id in _processes:
        os.killpg(_processes[job_run_id].pid, signal.SIGTERM)
    return answer


def add_job_flow_steps(backend: Any, job_flow_id: str, steps: list[dict[str, Any]]) -> Any:
    """Each step runs at once."""
    added = _add_steps(backend, job_flow_id, steps)
    for step in added:
        step.state = "RUNNING"
        threading.Thread(target=_run_step, args=(step, backend.clusters[job_flow_id]), daemon=True).start()
    _maybe_lose()
    return added


def _maybe_lose() -> None:
    place = Path(os.environ.get("LOSE_ANSWERS", "/nowhere"))
    left = int(place.read_text()) if place.exists() else 0
    if left > 0:
        place.write_text(str(left - 1))
        raise RuntimeError("the answer is lost")


def _run_job(job: Any) -> None:
    submitted = job.job_driver["sparkSubmit"]
    words = shlex.split(submitted["sparkSubmitParameters"])
    settings = dict(word.split("=", 1) for word in words[1::2])
    for given in job.configuration_overrides["applicationConfiguration"]:
        settings |= given["properties"]
    logs = job.configuration_overrides["monitoringConfiguration"]["s3MonitoringConfiguration"]["logUri"]
    place = f"{logs.rstrip('/')}/applications/{job.application_id}/jobs/{job.id}/SPARK_DRIVER"
    job.state = "RUNNING"
    arguments = submitted["entryPointArguments"]
    code = _run(job.id, submitted["entryPoint"], arguments, settings.pop("spark.archives"), settings, DRIVER, place)
    if job.state != "CANCELLED":
        job.state = "FAILED" if code else "SUCCESS"
        job.state_details = f"Job failed, please check complete logs. ExitCode: {code}." if code else ""


def _run_step(step: Any, cluster: Any) -> None:
    words = step.args[1:]
    options: dict[str, str] = {}
    settings: dict[str, str] = {}
    while words[0].startswith("--"):
        name, value, *words = words
        if name == "--conf":
            settings |= [value.split("=", 1)]
        else:
            options[name] = value
    place = f"s3://{cluster.log_uri.partition('://')[2].rstrip('/')}/{cluster.id}/steps/{step.id}"
    code = _run(step.id, words[0], words[1:], options["--archives"], settings, YARN, place)
    step.state = "FAILED" if code else "COMPLETED"
    step.last_state_change_reason = f"exit code {min(code, 1)}" if code else None


def _run(
    run: str, entry: str, arguments: list[str], archives: str, settings: Mapping[str, str], driver: str, logs: str
) -> int:
    """Run spark-submit to its end; its exit code."""
    s3 = boto3.client("s3")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for archive in archives.split(","):
            uri, _, unpacked = archive.partition("#")
            s3.download_file(*_parts(uri), str(folder / "archive"))
            with tarfile.open(folder / "archive") as tar:
                tar.extractall(folder / unpacked, filter="data")
        s3.download_file(*_parts(entry), str(folder / "entry.py"))
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        variables = {key.removeprefix(driver): value for key, value in settings.items() if key.startswith(driver)}
        for key, value in variables.items():
            if value.startswith("EMR.secret@"):
                secret = boto3.client("secretsmanager").get_secret_value(SecretId=value.removeprefix("EMR.secret@"))
                variables[key] = secret["SecretString"]
        variables |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_HOME": str(SPARK)}
        spark = {key: value for key, value in settings.items() if not key.startswith(("spark.executorEnv", driver))}
        given = [word for key, value in spark.items() for word in ("--conf", f"{key}={value}")]
        home = java_home()
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]", *given, "entry.py", *arguments],
                cwd=folder,
                env={**_environment(), **({} if home is None else {"JAVA_HOME": str(home)}), **variables},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            _processes[run] = process
            code = process.wait()
        zipped = gzip.compress((folder / "out").read_bytes())
        bucket, key = _parts(f"{logs}/stdout.gz")
        s3.put_object(Bucket=bucket, Key=key, Body=zipped)
    return code


def _environment() -> dict[str, str]:
    """What a job has of ours: where the services of AWS are, and the credentials, which its role gives it there."""
    return {name: value for name, value in os.environ.items() if re.match("AWS_|PATH$|HOME$|JAVA_HOME$|LANG$", name)}


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


if __name__ == "__main__":
    for kind, name, function in (
        (responses.GlueResponse, "update_table", strict_glue.update_table),
        (glue.GlueBackend, "create_table", strict_glue.create_table),
        (serverless.EMRServerlessBackend, "start_job_run", start_job_run),
        (serverless.EMRServerlessBackend, "cancel_job_run", cancel_job_run),
        (emr.ElasticMapReduceBackend, "add_job_flow_steps", add_job_flow_steps),
    ):
        setattr(kind, name, function)
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
