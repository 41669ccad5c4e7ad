"""`submit --init`: from a pipeline of this machine to a scheduled job, as files for the services' own tools."""

import json
import re
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
import yaml
from google.cloud import dataproc_v1
from google.protobuf import json_format
from moto import mock_aws
from typer.testing import CliRunner

from lakeingest.cli import app
from lakeingest.cluster.stack import OUTPUTS, read_parameters, stack_outputs
from lakeingest.cluster.templates import OPEN, template
from lakeingest.commands.deployment import deploy
from lakeingest.commands.submit import request_of
from lakeingest.errors import ConfigError, OperatorNeeded, UsageError

REGION = "eu-central-1"
LAPTOP = """
name: my_shop
source: {host: db.example.com, user: lake, password: "${MYSQL_PASSWORD}", tls: {ca: ca.pem}}
tables: {include: ["shop.*"], options: {shop.orders: {deletes: soft}}}
target: {table: "lake.{database}_{table}", catalog: {name: sales}}
spark: {conf: {spark.master: "local[2]", spark.sql.shuffle.partitions: "8"}}
"""
ON_EMR = [f"submit.emr-serverless.region={REGION}", "submit.emr-serverless.bucket=s3://company-lake"]
CLUSTER = {"project": "company", "region": "europe-west1", "cluster": "lake", "bucket": "gs://company-lake/any"}
ON_DATAPROC = [
    f"submit.dataproc={json.dumps(CLUSTER)}",
    'target.catalog={type: rest, uri: "https://catalog.example.com"}',
]
ROLE = "arn:aws:iam::123456789012:role/lakeingest"
# A stack with the outputs of ours, because moto does not make applications of EMR Serverless
STACK = json.dumps(
    {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"ApplicationId": {"Value": "00f1abcdefgh0001"}, "ExecutionRoleArn": {"Value": ROLE}},
    }
)


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """A pipeline.yml whose copy is in a folder of this machine."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
    path = tmp_path / "pipeline.yml"
    path.write_text(LAPTOP)
    return path


def contents(folder: Path) -> dict[str, str]:
    """The text of each file that a deployment wrote, by its path below the folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and "build" not in path.parts]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def parameters(path: Path) -> dict[str, str]:
    """The parameters of a stack."""
    return read_parameters(path.read_text())


def declared(name: str) -> tuple[set[str], set[str]]:
    """The parameters of a template, and those of them without a default."""
    text = template(name).partition("\nParameters:\n")[2].partition("\nResources:")[0].partition("\nConditions:")[0]
    blocks = re.findall(r"(?m)^  (\w+):\n((?:    .*\n?)+)", text)
    return {name for name, _ in blocks}, {name for name, block in blocks if "Default:" not in block}


@mock_aws
@pytest.mark.long("the whole way on AWS; that to Google is gone in every run")
def test_a_pipeline_of_a_laptop_gets_a_stack_then_a_job_and_a_schedule(laptop: Path) -> None:
    """First the stack's files; when the stack is there, the pipeline with its ids and the schedule of its request."""
    first = deploy(laptop, "emr-serverless", ON_EMR)
    folder = laptop.parent / "emr-serverless"
    assert [file.path.name for file in first.files] == ["stack.yml", "stack.json"]
    asked = parameters(folder / "stack.json")
    assert (asked["Name"], asked["Bucket"], asked["GlueDatabases"]) == ("my_shop", "company-lake", "shop")
    assert {name for name, value in asked.items() if value == OPEN} == {"Vpc", "Subnets"}
    every, needed = declared("aws/emr-serverless.yml")
    assert needed <= asked.keys() <= every
    assert "--stack-name lakeingest-my-shop" in first.note
    assert "put-secret-value --region eu-central-1 --secret-id lakeingest/my_shop" in first.note

    boto3.client("cloudformation", region_name=REGION).create_stack(StackName="lakeingest-my-shop", TemplateBody=STACK)
    second = deploy(laptop, "emr-serverless", ON_EMR)
    assert [(file.path.name, file.is_new) for file in second.files] == [
        ("stack.yml", False),
        ("stack.json", False),
        ("pipeline-emr-serverless.yml", True),
        ("schedule.yml", True),
        ("schedule.json", True),
    ]
    job_file = laptop.with_name("pipeline-emr-serverless.yml")
    document = yaml.safe_load(job_file.read_text())
    old = yaml.safe_load(LAPTOP)
    assert (document["tables"], document["name"]) == (old["tables"], old["name"])
    assert document["source"] == old["source"] | {"password": "aws-secretsmanager://lakeingest/my_shop#password"}
    assert document["target"] == old["target"] | {
        "catalog": {"type": "glue", "name": "sales"},
        "warehouse": "s3://company-lake/warehouse",
    }
    assert document["spark"] == {"jars": "provided", "conf": {"spark.sql.shuffle.partitions": "8"}}
    assert document["submit"]["emr-serverless"] == {
        "region": REGION,
        "bucket": "s3://company-lake/jobs",
        "application_id": "00f1abcdefgh0001",
        "execution_role_arn": ROLE,
    }
    request = request_of(job_file, "emr-serverless", "t")
    scheduled = parameters(folder / "schedule.json")
    assert scheduled["EntryPoint"] == request["jobDriver"]["sparkSubmit"]["entryPoint"]
    assert {name for name, value in scheduled.items() if value == OPEN} == {"Email"}
    every, needed = declared("aws/schedule.yml")
    assert needed <= scheduled.keys() <= every


@mock_aws
@pytest.mark.long("the same deployment once more")
def test_nothing_is_written_twice(laptop: Path) -> None:
    """What a person has changed since stays; the ids of the job's file are not asked for again."""
    deploy(laptop, "emr-serverless", [*ON_EMR, "submit.emr-serverless.application_id=a",
                                      f"submit.emr-serverless.execution_role_arn={ROLE}"])  # fmt: skip
    changed = laptop.parent / "emr-serverless" / "schedule.json"
    changed.write_text(changed.read_text().replace(OPEN, "data@example.com"))
    before = contents(laptop.parent)
    again = deploy(laptop, "emr-serverless", ON_EMR)
    assert not [file for file in again.files if file.is_new]
    assert contents(laptop.parent) == before


@mock_aws
def test_a_stack_that_is_not_complete_is_none(laptop: Path) -> None:
    """And so is another pipeline's; outputs that are not ours are left out."""
    client = boto3.client("cloudformation", region_name=REGION)
    client.create_stack(StackName="lakeingest-my-shop-2", TemplateBody=STACK)
    assert stack_outputs("lakeingest-my-shop", REGION) is None
    assert stack_outputs("lakeingest-my-shop-2", REGION) == dict(
        zip(OUTPUTS.values(), ("00f1abcdefgh0001", ROLE), strict=True)
    )
    client.delete_stack(StackName="lakeingest-my-shop-2")
    assert stack_outputs("lakeingest-my-shop-2", REGION) is None
    assert len(deploy(laptop, "emr-serverless", ON_EMR).files) == 2


def test_without_credentials_the_stack_is_unknown(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody can say that it is not there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(laptop.parent))
    with pytest.raises(OperatorNeeded, match="CloudFormation says nothing of the stack lakeingest-my-shop"):
        deploy(laptop, "emr-serverless", ON_EMR)


def test_dataproc_gets_a_workflow_a_schedule_and_alerts(laptop: Path) -> None:
    """Each with the names of this pipeline; Google's type takes the workflow, whose job is that of the request."""
    made = deploy(laptop, "dataproc", ON_DATAPROC)
    folder, job_file = laptop.parent / "dataproc", laptop.with_name("pipeline-dataproc.yml")
    document = yaml.safe_load(job_file.read_text())
    password = "gcp-secretmanager://projects/company/secrets/lakeingest-my_shop"
    assert document["source"]["password"] == password
    assert document["state"] == "gs://company-lake/state/my_shop"
    assert document["submit"]["dataproc"] == CLUSTER | {"bucket": "gs://company-lake/jobs"}
    workflow: Any = dataproc_v1.WorkflowTemplate.pb()()
    json_format.ParseDict(yaml.safe_load((folder / "workflow-template.yml").read_text()), workflow)
    request = request_of(job_file, "dataproc", "t")["job"]["pyspark_job"]
    [job] = [one.pyspark_job for one in workflow.jobs]
    assert list(job.archive_uris) == request["archive_uris"]
    assert dict(job.properties).items() <= request["properties"].items()
    assert workflow.id == "lakeingest-my-shop"
    schedule = json.loads((folder / "schedule.json").read_text())
    assert schedule["httpTarget"]["uri"].endswith(
        "/projects/company/regions/europe-west1/workflowTemplates/lakeingest-my-shop:instantiate"
    )
    assert "company-lake" not in schedule["httpTarget"]["uri"]
    for name in ("alert-jobs", "alert-schedule"):
        alert = (folder / f"{name}.yml").read_text()
        assert '"lakeingest-my-shop"' in alert
        assert yaml.safe_load(alert)["notificationChannels"] == [OPEN]
    assert "gcloud secrets create lakeingest-my_shop --project company" in made.note


def test_what_is_not_said_is_not_guessed(laptop: Path) -> None:
    """Nor is a secret written into a file, nor are there templates for all services."""
    with pytest.raises(ConfigError, match=r"does not have submit.emr-serverless.region, submit.emr-serverless.bucket"):
        deploy(laptop, "emr-serverless")
    with pytest.raises(ConfigError, match="wanted a bucket such as s3://company-lake"):
        deploy(laptop, "emr-serverless", [ON_EMR[0], "submit.emr-serverless.bucket=company-lake"])
    with pytest.raises(UsageError, match="templates for emr-serverless and dataproc, and none for emr"):
        deploy(laptop, "emr")
    with pytest.raises(ConfigError, match="the embedded catalog is a file of this machine"):
        deploy(laptop, "dataproc", ON_DATAPROC[:1])
    with pytest.raises(ConfigError, match=r"notify\.webhook is written out"):
        deploy(laptop, "dataproc", [*ON_DATAPROC, "notify.webhook=https://hooks.example.com/secret"])
    assert contents(laptop.parent).keys() == {"pipeline.yml", "ca.pem"}


@pytest.mark.parametrize("name", ["${PIPELINE}", "my_${PIPELINE:-shop}"])
@pytest.mark.long("starts Python for each name", turn="name")
def test_a_name_that_is_a_variable_is_refused_at_once(laptop: Path, name: str) -> None:
    """The stack, the secret and the state would be named by its text; a value on the command line is taken."""
    laptop.write_text(LAPTOP.replace("name: my_shop", f'name: "{name}"'))
    for key, overrides in (("emr-serverless", ON_EMR), ("dataproc", ON_DATAPROC)):
        with pytest.raises(
            ConfigError, match=r"name holds the variable .*PIPELINE.*; write the value out, or add --set"
        ):
            deploy(laptop, key, overrides)
    assert contents(laptop.parent).keys() == {"pipeline.yml", "ca.pem"}
    made = deploy(laptop, "dataproc", [*ON_DATAPROC, "name=shop"])
    assert "lakeingest-shop" in made.note
    laptop.write_text(LAPTOP)
    with pytest.raises(ConfigError, match=r"submit\.emr-serverless\.bucket holds the variable"):
        deploy(laptop, "emr-serverless", [ON_EMR[0], "submit.emr-serverless.bucket=s3://${LAKE}"])


@pytest.mark.long("the same deployment once more")
def test_the_command_says_what_comes_next(laptop: Path) -> None:
    """As text, and as JSON; it sends nothing, so it goes with no other way to treat a job."""
    words = ["submit", "dataproc", "--init", "-c", str(laptop)]
    words += [word for override in ON_DATAPROC for word in ("--set", override)]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert re.search(r"(?m)^2\. lakeingest submit dataproc -c \S+pipeline-dataproc\.yml --wait$", said.output)
    files = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["files"]
    assert {file["is_new"] for file in files} == {False}
    for other in (["--wait"], ["--dry-run"], ["--cancel", "job"]):
        assert isinstance(CliRunner().invoke(app, [*words, *other]).exception, UsageError)
