"""Jobs that are sent, run and followed: the calls are moto's, the files are in S3, the program is the job's own."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from lakeingest.cluster import archive
from lakeingest.demo.s3 import LocalS3
from lakeingest.demo.server import HOST, LocalServer, await_start, child, reserved_port
from tests.e2e.job import Job
from tests.plugins.quick import QUICK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "emr-serverless.md").read_text()
REGION, PASSWORD = "us-east-1", "hush-hush"

pytestmark = [
    pytest.mark.long("packs all dependencies of a job, and runs it with a Spark of its own"),
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the archives are for Python 3.11"),
]


@dataclass(frozen=True)
class Account:
    """An account of AWS: its services answer here, and S3 is a real server. `lost` is the file that loses answers."""

    variables: Mapping[str, str]
    bucket: str
    application: str
    cluster: str
    lost: Path

    def client(self, service: str) -> Any:
        """A client of one of its services."""
        keys = {"aws_access_key_id": self.variables["AWS_ACCESS_KEY_ID"], "region_name": REGION}
        keys["aws_secret_access_key"] = self.variables["AWS_SECRET_ACCESS_KEY"]
        place = self.variables["AWS_ENDPOINT_URL_S3" if service == "s3" else "AWS_ENDPOINT_URL"]
        return boto3.client(service, endpoint_url=place, **keys)


@pytest.fixture(scope="module")
def account(s3: LocalS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An account with an application, a cluster and a secret."""
    folder = tmp_path_factory.mktemp("account")
    with reserved_port(None) as port:
        place, lost = f"http://{HOST}:{port}", folder / "lost"
        variables = {
            **s3.environment,
            "AWS_ENDPOINT_URL": place,
            "AWS_ENDPOINT_URL_S3": s3.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        own = {**variables, "LOSE_ANSWERS": str(lost), "PYTHONPATH": str(ROOT)}
        log = folder / "log"
        with child([sys.executable, "-m", "tests.servers.job_services", str(port)], log, environment=own) as process:
            ready = f"{place}/moto-api/data.json"
            await_start(process, log, lambda: urllib.request.urlopen(ready, timeout=5).close(), 120.0)  # noqa: S310
            made = Account(variables, s3.bucket, "", "", lost)
            emr, steps = made.client("emr-serverless"), made.client("emr")
            application = emr.create_application(name="lake", releaseLabel="emr-7.1.0", type="SPARK", clientToken="a")
            cluster = steps.run_job_flow(
                Name="lake",
                LogUri=f"s3n://{s3.bucket}/emr-logs/",
                Instances={"InstanceCount": 1, "MasterInstanceType": "m5.xlarge", "KeepJobFlowAliveWhenNoSteps": True},
                JobFlowRole="a",
                ServiceRole="b",
            )
            yield replace(made, application=application["applicationId"], cluster=cluster["JobFlowId"])


@dataclass(frozen=True)
class Submitted:
    """A pipeline with tables in S3 that is run by jobs alone."""

    job: Job
    account: Account

    def submit(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """The command, as a person types it; the password is not known here."""
        return subprocess.Popen(
            [sys.executable, "-m", "lakeingest", "submit", *arguments],
            cwd=self.job.folder,
            env={
                **os.environ,
                **self.account.variables,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """How the command ended, and what it said."""
        process = self.submit(*arguments, **variables)
        out, err = process.communicate(timeout=900)
        assert PASSWORD not in out + err
        return process.returncode, out, err


@pytest.fixture
def pipeline(
    account: Account, built: Path, tmp_path: Path, mysql_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submitted]:
    """A table of three rows; the password of its reader is in Secrets Manager alone."""
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    database = f"jobs_{os.urandom(4).hex()}"
    secret = f"lake/{database}"
    account.client("secretsmanager").create_secret(Name=secret, SecretString=json.dumps({"password": PASSWORD}))
    place = f"s3://{account.bucket}/{database}"
    target = {
        "catalog": {"type": "glue", "properties": {"glue.endpoint": account.variables["AWS_ENDPOINT_URL"]}},
        "warehouse": f"{place}/warehouse",
        "storage": {"endpoint": account.variables["AWS_ENDPOINT_URL_S3"], "region": REGION, "path_style": True},
    }
    job = Job(tmp_path / "here", mysql_server, database, target=target, stored=f"{place}/state").write()
    file = job.folder / "pipeline.yml"
    doc = json.loads(file.read_text())
    doc["source"] |= {"user": f"u_{database}"[:30], "password": f"aws-secretsmanager://{secret}#password"}
    doc["spark"]["conf"] = QUICK
    serverless = {"application_id": account.application, "region": REGION, "bucket": f"s3://{account.bucket}/jobs"}
    serverless["execution_role_arn"] = "arn:aws:iam::123456789012:role/lakeingest"
    steps = {"cluster_id": account.cluster, "region": REGION, "bucket": f"s3://{account.bucket}/jobs"}
    doc["submit"] = {"emr-serverless": serverless, "emr": steps}
    file.write_text(json.dumps(doc))
    (job.folder / "build" / "submit").mkdir(parents=True)
    for path in built.iterdir():
        os.link(path, job.folder / "build" / "submit" / path.name)
    user = doc["source"]["user"]
    job.sql(
        f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v TEXT)",
        f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    yield Submitted(job, account)
    job.sql(f"DROP DATABASE {database}", f"DROP USER {user}")


def test_a_job_of_emr_serverless_copies_the_tables(pipeline: Submitted) -> None:
    """Files are uploaded once, the job fetches the secret, its log is shown, and its exit code is the command's."""
    code, out, err = pipeline.said("emr-serverless", "--wait", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer == {"service": "emr-serverless", "job": answer["job"], "exit": 0, "error": None}
    assert "t: 3 rows, published as of" in err  # which the job's program printed
    assert len(re.findall("^lakeingest: upload ", err, re.MULTILINE)) == 2 + len(archive.dependencies_names([]))
    assert pipeline.job.published("t") == pipeline.job.source("t")

    pipeline.job.sql(f"UPDATE {pipeline.job.database}.t SET v = 'changed' WHERE id = 2")
    commands = re.findall(r"^lakeingest submit (emr-serverless --(?!init).*)$", PAGE, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["--dry-run", "--wait"]
    for command in commands:
        code, _, err = pipeline.said(*command.split())
        assert (code, "lakeingest: upload" in err) == (0, False), err
    assert pipeline.job.published("t") == pipeline.job.source("t")

    run = pipeline.account.client("emr-serverless").get_job_run(
        applicationId=pipeline.account.application, jobRunId=answer["job"]
    )
    assert PASSWORD not in json.dumps(run, default=str)


def test_a_step_of_emr_exits_with_the_code_of_the_job(pipeline: Submitted) -> None:
    """EMR says only that a step failed: the code and the reason are those that the job has recorded."""
    code, out, err = pipeline.said("emr", "--wait")
    assert (code, out) == (0, ""), err
    assert pipeline.job.published("t") == pipeline.job.source("t")
    pipeline.job.sql(f"ALTER TABLE {pipeline.job.database}.t MODIFY id FLOAT")  # no copy can have such a key
    pipeline.job.sql(f"UPDATE {pipeline.job.database}.t SET v = 'other' WHERE id = 1")
    code, _, err = pipeline.said("emr", "--wait")
    assert code == 3, err
    assert re.search(r"^lakeingest: job s-\w+: .*\(runbook: \w+\)$", err, re.MULTILINE), err


def job_runs(account: Account) -> list[str]:
    """The jobs of the application; moto does not find an application before its first job."""
    emr = account.client("emr-serverless")
    try:
        return [job["id"] for job in emr.list_job_runs(applicationId=account.application)["jobRuns"]]
    except emr.exceptions.ResourceNotFoundException:
        return []


def test_a_job_whose_answer_is_lost_is_not_started_twice(pipeline: Submitted) -> None:
    """Neither when the client asks again, nor when the next command does; on EMR, which has no tokens, as well."""
    account = pipeline.account
    before = len(job_runs(account))
    account.lost.write_text("2")
    code, first, err = pipeline.said("emr-serverless")
    assert code == 0, err
    account.lost.write_text("6")
    assert pipeline.said("emr-serverless")[0] == 75
    account.lost.write_text("0")
    code, second, err = pipeline.said("emr-serverless", "--wait", "--json")
    assert code in {0, 75}, err  # the first job may still hold the lease
    jobs = job_runs(account)
    assert len(jobs) == before + 2
    assert {first.strip(), json.loads(second)["job"]} <= set(jobs)

    steps = account.client("emr")
    before = len(steps.list_steps(ClusterId=account.cluster)["Steps"])
    account.lost.write_text("1")
    code, step, err = pipeline.said("emr")
    assert code == 0, err
    assert [one["Id"] for one in steps.list_steps(ClusterId=account.cluster)["Steps"]].count(step.strip()) == 1
    assert len(steps.list_steps(ClusterId=account.cluster)["Steps"]) == before + 1


def test_ctrl_c_leaves_the_job_alone(pipeline: Submitted) -> None:
    """It is said how to end it, and that command does."""
    process = pipeline.submit("emr-serverless", "--wait")
    assert process.stderr is not None
    lines: list[str] = []
    while not any("running" in line for line in lines):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    [hint] = re.findall(r"interrupted; job \w+ goes on; to end it: lakeingest submit (.*)", err)
    code, _, err = pipeline.said(*hint.split())
    assert (code, "is asked to end" in err) == (0, True), err
    account = pipeline.account
    run = hint.split()[-1]
    found = account.client("emr-serverless").get_job_run(applicationId=account.application, jobRunId=run)["jobRun"]
    assert found["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        (
            "submit.emr-serverless.application_id=00nothing",
            2,
            "submit.emr-serverless.application_id: .*ResourceNotFound",
        ),
        ("submit.emr-serverless.bucket=s3://nowhere-at-all", 3, "nowhere-at-all/.* cannot be read or written"),
        (
            "submit.emr-serverless.execution_role_arn=arn:aws:iam::999999999999:role/other",
            3,
            "does not start the job: .*AccessDenied.*; correct the credentials, or their rights in IAM",
        ),
    ],
)
def test_what_the_account_refuses_is_named(pipeline: Submitted, changed: str, code: int, message: str) -> None:
    """In one line, with the key or with what has to be corrected."""
    found, out, err = pipeline.said("emr-serverless", "--set", changed)
    assert (found, out) == (code, ""), err
    assert re.search(message, err.splitlines()[-1]), err


def test_a_machine_without_credentials_is_told_so(pipeline: Submitted) -> None:
    """Before anything is uploaded."""
    away = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    code, _, err = pipeline.said("emr-serverless", **away)
    assert (code, "credentials" in err.lower()) == (3, True), err
