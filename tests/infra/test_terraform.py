"""The modules of Terraform make what the templates of CloudFormation and of Dataproc make."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
import yaml
from moto.emrserverless import models as serverless
from moto.server import ThreadedMotoServer

from lakeingest.cluster.dataproc import DataprocJobs
from lakeingest.cluster.emr_serverless import EmrServerlessJobs
from lakeingest.cluster.service import Job
from lakeingest.cluster.templates import OPEN
from lakeingest.cluster.workflow import workflow_files
from lakeingest.config.submit import Dataproc, EmrServerless
from tests.servers.engines import Engine
from tests.servers.google_provider import SCHEMAS
from tests.servers.terraform import MODULES, Terraform, program

PAGE = MODULES.parents[1] / "docs" / "howto" / "terraform.md"
TEMPLATES = MODULES.parent
REGION = "eu-central-1"


def root_module(place: Path, provider: str) -> Path:
    """A folder with the modules and the text of the page for one of them."""
    [text] = [one for one in re.findall(r"(?s)```hcl\n(.*?)```", PAGE.read_text()) if f'"./{place.name}"' in one]
    shutil.copytree(MODULES, place)
    (place / "main.tf").write_text(text + provider)
    return place


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of moto, whose applications begin as Amazon's do."""
    monkeypatch.setattr(serverless, "APPLICATION_STATUS", "CREATED")
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


class _Template(yaml.SafeLoader):
    """A loader that keeps the functions of CloudFormation, as pairs of their name and their argument."""


def _function(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> tuple[str, Any]:
    if isinstance(node, yaml.SequenceNode):
        return name, loader.construct_sequence(node, deep=True)
    return name, node.value


_Template.add_multi_constructor("!", _function)


class Stack:
    """The resources of a template, with the values of its functions. `values` are parameters, ids and attributes."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self.document = yaml.load((TEMPLATES / "aws" / name).read_text(), _Template)  # noqa: S506 - a SafeLoader
        defaults = {key: str(one["Default"]) for key, one in self.document["Parameters"].items() if "Default" in one}
        self.values = defaults | values

    def properties(self) -> dict[str, Any]:
        """The properties of each resource, by its name."""
        return {name: self._read(one["Properties"]) for name, one in self.document["Resources"].items()}

    def _read(self, doc: Any) -> Any:
        match doc:
            case ("Ref" | "GetAtt", str(name)):
                return self.values[name]
            case ("Sub", str(text)):
                return re.sub(r"\$\{([\w:.]+)\}", lambda found: self.values[found[1]], text)
            case ("If", [str(condition), yes, no]):
                return self._read(yes if self.values[condition] else no)
            case dict():
                return {key: self._read(value) for key, value in doc.items()}
            case list():
                return [self._read(value) for value in doc]
        return doc


def policy(text: str) -> Any:
    """A policy's document."""
    return json.loads(text)


def bucket(made: dict[str, Any]) -> dict[str, Any]:
    """The properties of MadeBucket."""
    [rule] = made["aws_s3_bucket_server_side_encryption_configuration.lake"]["rule"]
    [encryption] = rule["apply_server_side_encryption_by_default"]
    blocked = made["aws_s3_bucket_public_access_block.lake"]
    default = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": encryption["sse_algorithm"]}}
    return {
        "BucketName": made["aws_s3_bucket.lake"]["bucket"],
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [default]},
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": blocked["block_public_acls"],
            "BlockPublicPolicy": blocked["block_public_policy"],
            "IgnorePublicAcls": blocked["ignore_public_acls"],
            "RestrictPublicBuckets": blocked["restrict_public_buckets"],
        },
    }


def application(one: dict[str, Any]) -> dict[str, Any]:
    """The properties of Application."""
    [start], [stop] = one["auto_start_configuration"], one["auto_stop_configuration"]
    [most], [network] = one["maximum_capacity"], one["network_configuration"]
    return {
        "Name": one["name"],
        "Type": one["type"].upper(),
        "ReleaseLabel": one["release_label"],
        "Architecture": one["architecture"],
        "AutoStartConfiguration": {"Enabled": start["enabled"]},
        "AutoStopConfiguration": {"Enabled": stop["enabled"], "IdleTimeoutMinutes": stop["idle_timeout_minutes"]},
        "MaximumCapacity": {"Cpu": most["cpu"], "Memory": most["memory"]},
        "NetworkConfiguration": {"SubnetIds": network["subnet_ids"], "SecurityGroupIds": network["security_group_ids"]},
    }


def role(made: dict[str, Any], name: str) -> dict[str, Any]:
    """The properties of a role with one policy."""
    inline = made[f"aws_iam_role_policy.{name}"]
    return {
        "AssumeRolePolicyDocument": policy(made[f"aws_iam_role.{name}"]["assume_role_policy"]),
        "Policies": [{"PolicyName": inline["name"], "PolicyDocument": policy(inline["policy"])}],
    }


def group(one: dict[str, Any]) -> dict[str, Any]:
    """The properties of SecurityGroup. Like CloudFormation's, it lets everything out, and nothing in."""
    [out] = one["egress"]
    assert (out["protocol"], out["cidr_blocks"], one["ingress"]) == ("-1", ["0.0.0.0/0"], [])
    return {"GroupDescription": one["description"], "VpcId": one["vpc_id"]}


def start(one: dict[str, Any]) -> dict[str, Any]:
    """The properties of Start."""
    [window], [target] = one["flexible_time_window"], one["target"]
    [retry] = target["retry_policy"]
    return {
        "Name": one["name"],
        "GroupName": one["group_name"],
        "ScheduleExpression": one["schedule_expression"],
        "FlexibleTimeWindow": {"Mode": window["mode"]},
        "Target": {
            "Arn": target["arn"],
            "RoleArn": target["role_arn"],
            "RetryPolicy": {
                "MaximumRetryAttempts": retry["maximum_retry_attempts"],
                "MaximumEventAgeInSeconds": retry["maximum_event_age_in_seconds"],
            },
            "Input": json.loads(target["input"]),
        },
    }


def rule(made: dict[str, Any], name: str) -> dict[str, Any]:
    """The properties of a rule with one target."""
    one, target = made[f"aws_cloudwatch_event_rule.{name}"], made[f"aws_cloudwatch_event_target.{name}"]
    assert target["rule"] == one["name"]
    written = {"Id": target["target_id"], "Arn": target["arn"]}
    for change in target["input_transformer"]:
        paths, text = change["input_paths"], change["input_template"]
        written["InputTransformer"] = {"InputPathsMap": paths, "InputTemplate": text}
    pattern = policy(one["event_pattern"])
    return {"Description": one["description"], "EventPattern": pattern, "Targets": [written]}


def alarm(one: dict[str, Any]) -> dict[str, Any]:
    """The properties of an alarm."""
    kept = {
        "AlarmDescription": one["alarm_description"],
        "Namespace": one["namespace"],
        "MetricName": one["metric_name"],
        "Dimensions": [{"Name": name, "Value": value} for name, value in one["dimensions"].items()],
        "Statistic": one["statistic"],
        "Period": one["period"],
        "EvaluationPeriods": one["evaluation_periods"],
        "Threshold": one["threshold"],
        "ComparisonOperator": one["comparison_operator"],
        "TreatMissingData": one["treat_missing_data"],
        "AlarmActions": one["alarm_actions"],
        "OKActions": one["ok_actions"] or [],
    }
    return {name: value for name, value in kept.items() if value != []}


def job_as_cloudformation(made: dict[str, Any]) -> dict[str, Any]:
    """What the stack of emr-serverless.yml has, from the resources of Terraform."""
    secret, submit = made["aws_secretsmanager_secret.password"], made["aws_iam_policy.submit"]
    return {
        "MadeBucket": bucket(made),
        "MadeSecret": {"Name": secret["name"], "Description": secret["description"]},
        "SecurityGroup": group(made["aws_security_group.jobs"]),
        "Application": application(made["aws_emrserverless_application.jobs"]),
        "JobRole": role(made, "job"),
        "SubmitPolicy": {"Description": submit["description"], "PolicyDocument": policy(submit["policy"])},
    }


def schedule_as_cloudformation(made: dict[str, Any]) -> dict[str, Any]:
    """What the stack of schedule.yml has, from the resources of Terraform."""
    mail, topic_policy = made["aws_sns_topic_subscription.people"], made["aws_sns_topic_policy.people"]
    log, log_policy = made["aws_cloudwatch_log_group.succeeded"], made["aws_cloudwatch_log_resource_policy.succeeded"]
    assert mail["topic_arn"] == made["aws_sns_topic.people"]["arn"]
    return {
        "Topic": {"Subscription": [{"Protocol": mail["protocol"], "Endpoint": mail["endpoint"]}]},
        "TopicPolicy": {"Topics": [topic_policy["arn"]], "PolicyDocument": policy(topic_policy["policy"])},
        "Group": {"Name": made["aws_scheduler_schedule_group.jobs"]["name"]},
        "Start": start(made["aws_scheduler_schedule.start"]),
        "StartRole": role(made, "start"),
        "Failed": rule(made, "failed"),
        "Succeeded": rule(made, "succeeded"),
        "Log": {"LogGroupName": log["name"], "RetentionInDays": log["retention_in_days"]},
        "LogPolicy": {"PolicyName": log_policy["policy_name"], "PolicyDocument": policy(log_policy["policy_document"])},
        "NoSuccess": alarm(made["aws_cloudwatch_metric_alarm.no_success"]),
        "NotStarted": alarm(made["aws_cloudwatch_metric_alarm.not_started"]),
    }


def request(outputs: dict[str, Any]) -> dict[str, Any]:
    """The request of a job of the application, with letters that JSON or the Scheduler could take for their own."""
    settings = {**outputs, "region": REGION, "bucket": "s3://company-lake/jobs", "max_minutes": 90}
    arguments = ("run", "-c", "job/pipeline.yml", "--set", "tables.include=[\"<a> & 'b'.*\"]")
    job = Job("shop", "t", "s3://company-lake/jobs/a.py", arguments, {"job": "s3://a/b"}, {}, {"a": 'b "c" \\u003c é'})
    return EmrServerlessJobs(EmrServerless.model_validate(settings)).request(job)


@pytest.mark.long("three applies, each of half a minute")
def test_terraform_makes_what_cloudformation_makes(amazon: str, tmp_path: Path) -> None:
    """First the application without a schedule, then both; each property is that of the template's resource."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": REGION, "AWS_ENDPOINT_URL": amazon}
    folder = root_module(tmp_path / "emr-serverless", '\nprovider "aws" {\n  s3_use_path_style = true\n}\n')
    client = boto3.client(
        "ec2", region_name=REGION, endpoint_url=amazon, aws_access_key_id="a", aws_secret_access_key="b"
    )
    vpc, subnet = client.describe_vpcs()["Vpcs"][0]["VpcId"], client.describe_subnets()["Subnets"][0]["SubnetId"]
    text = (folder / "main.tf").read_text()
    text = re.sub(r'"subnet-\w+"', f'"{subnet}"', re.sub(r'"vpc-\w+"', f'"{vpc}"', text))
    (folder / "main.tf").write_text(text)
    terraform = Terraform(folder, keys)
    terraform.init()
    terraform.run("validate")
    terraform.run("plan", "-input=false", "-out=first")
    terraform.run("apply", "-input=false", "first")
    first, outputs = terraform.resources(), terraform.outputs()
    assert len(first) == 9
    # moto forgets the architecture, so that of the plan is compared
    asked = terraform.resources("first")["aws_emrserverless_application.jobs"]["architecture"]
    first["aws_emrserverless_application.jobs"]["architecture"] = asked
    values = {
        "Name": "shop",
        "Bucket": "company-lake",
        "GlueDatabases": "shop",
        "Vpc": vpc,
        "Subnets": [subnet],
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::AccountId": "123456789012",
        "MakesBucket": True,
        "MakesSecret": True,
        "MadeSecret": first["aws_secretsmanager_secret.password"]["arn"],
        "SecurityGroup": first["aws_security_group.jobs"]["id"],
        "Application.Arn": first["aws_emrserverless_application.jobs"]["arn"],
        "JobRole.Arn": outputs["execution_role_arn"],
    }
    assert job_as_cloudformation(first) == Stack("emr-serverless.yml", values).properties()

    ours = request(outputs)
    (folder / "request.json").write_text(json.dumps(ours))
    terraform.run("apply", "-auto-approve", "-input=false")
    made = terraform.resources()
    made["aws_emrserverless_application.jobs"]["architecture"] = asked
    assert job_as_cloudformation(made) == job_as_cloudformation(first)
    driver, overrides = ours["jobDriver"]["sparkSubmit"], ours["configurationOverrides"]
    stack = Stack(
        "schedule.yml",
        {
            **values,
            "ApplicationId": outputs["application_id"],
            "ExecutionRoleArn": outputs["execution_role_arn"],
            "EntryPoint": driver["entryPoint"],
            "SparkSubmitParameters": driver["sparkSubmitParameters"],
            "SparkDefaults": json.dumps(overrides["applicationConfiguration"][0]["properties"]),
            "LogUri": overrides["monitoringConfiguration"]["s3MonitoringConfiguration"]["logUri"],
            "MaxMinutes": "90",
            "Email": "data@example.com",
            "Topic": made["aws_sns_topic.people"]["arn"],
            "Failed.Arn": made["aws_cloudwatch_event_rule.failed"]["arn"],
            "Succeeded": made["aws_cloudwatch_event_rule.succeeded"]["name"],
            "Group": made["aws_scheduler_schedule_group.jobs"]["name"],
            "StartRole.Arn": made["aws_iam_role.start"]["arn"],
            "Log": made["aws_cloudwatch_log_group.succeeded"]["name"],
            "Log.Arn": made["aws_cloudwatch_log_group.succeeded"]["arn"] + ":*",
        },
    ).properties()
    stack["LogPolicy"]["PolicyDocument"] = json.loads(stack["LogPolicy"]["PolicyDocument"])
    stack["NoSuccess"]["EvaluationPeriods"] = int(stack["NoSuccess"]["EvaluationPeriods"])
    sent = stack["Start"]["Target"]["Input"] = json.loads(stack["Start"]["Target"]["Input"])
    # The template has the arguments of a job without options; the module takes those of the request
    sent["JobDriver"]["SparkSubmit"]["EntryPointArguments"] = list(driver["entryPointArguments"])
    assert schedule_as_cloudformation(made) == stack
    assert "<aws.scheduler.execution-id>" in made["aws_scheduler_schedule.start"]["target"][0]["input"]

    terraform.run("plan", "-input=false", "-out=again")
    changes = [one for one in json.loads(terraform.run("show", "-json", "again"))["resource_changes"]
               if one["change"]["actions"] != ["no-op"]]  # fmt: skip
    [(before, after)] = [(one["change"]["before"], one["change"]["after"]) for one in changes]
    assert before | {"architecture": "X86_64"} == after  # which moto has forgotten again
    (folder / "request.json").write_text(json.dumps(ours | {"applicationId": "00fother"}))
    assert "for another application or role" in terraform.run("plan", "-input=false", fails=True)


@pytest.mark.parametrize("module", sorted(path.name for path in MODULES.iterdir()))
def test_no_secret_gets_into_the_state(module: str) -> None:
    """No resource, variable or output of a module has a password; what it makes to hold one stays empty."""
    text = "".join(path.read_text() for path in (MODULES / module).glob("*.tf"))
    kinds = set(re.findall(r'(?m)^(?:resource|data) "(\w+)"', text))
    assert kinds
    assert not {kind for kind in kinds if kind.endswith(("secret_version", "access_key", "account_key", "password"))}
    assert "sensitive" not in text
    assert not re.findall(r'(?m)^variable "\w*(password|token|key)\w*"', text)


# Terraform with a provider that has Google's schemas, in a process that has msgpack
GOOGLE = Engine(
    "Google's schemas for Terraform",
    ("msgpack==1.2.4",),
    """
sys.path[:0] = asked["paths"]
import msgpack
from pathlib import Path
from tests.servers.google_provider import Provider
from tests.servers.terraform import Terraform
server, reached = Provider(msgpack.unpackb).serve()
terraform = Terraform(Path(asked["folder"]), {"TF_REATTACH_PROVIDERS": reached})
terraform.init()
terraform.run("validate")
terraform.run("plan", "-input=false", "-out=plan")
print(json.dumps(terraform.resources("plan")))
server.stop(None)
""",
)
EMAIL = "data@example.com"


def written(planned: dict[str, dict[str, Any]], address: str) -> dict[str, Any]:
    """What a module writes about a resource, as Google's APIs have it: without what Google would choose."""
    schema = json.loads(SCHEMAS.read_text())["resources"][address.partition(".")[0]]
    found = {key: value for key, value in planned[address].items() if schema[key].get("use") != "computed"}
    return dict(in_camel_case(found))


def in_camel_case(doc: Any) -> Any:
    """A document as Google's APIs have it, without what is not set. Blocks of one are what they hold."""
    kept = {"labels", "properties", "headers"}  # their keys are ours
    if not isinstance(doc, dict):
        return [in_camel_case(one) for one in doc] if isinstance(doc, list) else doc
    found = {}
    for key, value in doc.items():
        if value is None or value == [] or key == "project":
            continue
        name = re.sub(r"_(\w)", lambda letter: letter[1].upper(), key)
        is_block = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and key not in MANY
        inner = value[0] if is_block else value
        found[name] = inner if key in kept else in_camel_case(inner)
    return found


MANY = {"jobs", "conditions", "aggregations"}


def test_terraform_plans_what_init_writes_for_dataproc(tmp_path: Path) -> None:
    """By the names and types of Google's provider: the workflow, its schedule and its alerts, and least rights."""
    program()
    service = Dataproc(project="company", region="europe-west1", cluster="lake", bucket="gs://company-lake/jobs")
    archives = {"job": "gs://company-lake/jobs/b.tar.gz"}
    job = Job("My_Shop", "t", "gs://company-lake/jobs/a.py", ("run",), archives, {}, {"spark.a": "<b> & 'c'"})
    asked = DataprocJobs(service).request(job)
    folder = root_module(tmp_path / "dataproc", "")
    text = (folder / "main.tf").read_text()
    (folder / "main.tf").write_text(text.replace('"shop" #', '"My_Shop" #'))
    (folder / "request.json").write_text(json.dumps(asked))
    planned = json.loads(GOOGLE.run({"folder": str(folder), "paths": [str(MODULES.parents[1]), *sys.path]}))
    texts = workflow_files("My_Shop", service, asked)
    files = {name: yaml.safe_load(text) for name, text in texts.items()}

    workflow = written(planned, "google_dataproc_workflow_template.run")
    cluster = workflow["placement"]["managedCluster"]["config"]
    for machines in (cluster["masterConfig"], cluster["workerConfig"]):
        machines["machineTypeUri"] = machines.pop("machineType")
    assert cluster["gceClusterConfig"].pop("serviceAccount") == "email of lakeingest-my-shop"
    wanted = files["workflow-template.yml"]
    del wanted["placement"]["managedCluster"]["config"]["gceClusterConfig"]["serviceAccount"]  # is OPEN there
    assert (workflow.pop("name"), workflow.pop("location")) == (wanted.pop("id"), "europe-west1")
    assert workflow == wanted

    start, wanted = written(planned, "google_cloud_scheduler_job.start"), files["schedule.json"]
    assert start["httpTarget"]["oauthToken"].pop("serviceAccountEmail") == "email of lakestart-my-shop"
    del wanted["httpTarget"]["oauthToken"]["serviceAccountEmail"]
    assert f"projects/company/locations/{start.pop('region')}/jobs/{start.pop('name')}" == wanted.pop("name")
    assert start == wanted

    [channel] = [one for name, one in planned.items() if "notification_channel" in name]
    assert (channel["type"], channel["labels"]) == ("email", {"email_address": EMAIL})
    for name, file in (("jobs", "alert-jobs.yml"), ("schedule", "alert-schedule.yml")):
        alert, wanted = written(planned, f"google_monitoring_alert_policy.{name}"), files[file]
        assert alert.pop("notificationChannels") == ["name of google_monitoring_notification_channel"]
        assert wanted.pop("notificationChannels") == [OPEN]
        for condition in (*alert["conditions"], *wanted["conditions"]):
            condition["displayName"] = condition["displayName"].replace("two hours", "120 minutes")
        assert alert == wanted

    rights = {(one["member"], one["role"]) for name, one in planned.items() if "_iam_member" in name}
    assert rights == {
        ("serviceAccount:email of lakeingest-my-shop", "roles/dataproc.worker"),
        ("serviceAccount:email of lakeingest-my-shop", "roles/storage.objectAdmin"),
        ("serviceAccount:email of lakeingest-my-shop", "roles/secretmanager.secretAccessor"),
        ("serviceAccount:email of lakestart-my-shop", "roles/dataproc.editor"),
        ("serviceAccount:email of lakestart-my-shop", "roles/iam.serviceAccountUser"),
    }
    page = PAGE.with_name("dataproc.md").read_text()
    assert {role for _, role in rights} <= set(re.findall(r"`(roles/[\w.]+)`", page))
