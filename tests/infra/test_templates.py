"""The templates of infra/, checked without any account: by tools and types of their readers, else by structure."""

import ast
import base64
import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import cfnlint.api
import jsonschema
import pytest
import yaml
from google.cloud import dataproc_v1
from google.protobuf import json_format

from lakeingest.cluster.archive import dependencies_names
from lakeingest.cluster.dataproc import DataprocJobs
from lakeingest.cluster.emr_serverless import EmrServerlessJobs
from lakeingest.cluster.service import Job
from lakeingest.cluster.stack import read_parameters, schedule_parameters
from lakeingest.config import load_config
from lakeingest.config.submit import Dataproc, EmrServerless
from lakeingest.errors import OperatorNeeded, Retryable
from lakeingest.lake.marks import BUILDING
from lakeingest.version import VERSION
from tests.servers.engines import Engine

INFRA = Path(__file__).parents[2] / "infra"
AWS = sorted((INFRA / "aws").glob("*.yml"))
JOBS = [path for path in AWS if path.stem != "schedule"]
# The types of Google's own clients
CLIENTS = Engine(
    "Google's clients",
    ("google-cloud-scheduler==2.21.0", "google-cloud-monitoring==2.32.0"),
    """
from google.cloud import monitoring_v3, scheduler_v1
from google.protobuf import json_format
json_format.ParseDict(asked["job"], scheduler_v1.Job.pb()())
for policy in asked["policies"]:
    json_format.ParseDict(policy, monitoring_v3.AlertPolicy.pb()())
""",
)


# The newest package of Docker Compose that is Python; of it only the schema is read
COMPOSE = Engine("Docker Compose", ("docker-compose==1.29.2",), "")


class _Template(yaml.SafeLoader):
    """A loader that reads the functions of CloudFormation as their arguments."""


_Template.add_multi_constructor("!", lambda _loader, _suffix, node: getattr(node, "value", None))


def statements(path: Path) -> list[dict[str, Any]]:
    """Every statement of the policies of a template, but those about who may take a role."""
    found = []
    for resource in yaml.load(path.read_text(), _Template)["Resources"].values():  # noqa: S506 - a SafeLoader
        properties = resource["Properties"]
        documents = [
            properties.get("PolicyDocument"),
            *(one["PolicyDocument"] for one in properties.get("Policies", ())),
        ]
        read = (json.loads(document) if isinstance(document, str) else document for document in documents if document)
        found += [statement for document in read for statement in document["Statement"]]
    return found


@pytest.mark.parametrize("path", AWS, ids=lambda path: path.stem)
@pytest.mark.long("takes seconds", only=("schedule",))
def test_cloudformation_takes_the_template(path: Path) -> None:
    """cfn-lint finds neither an error nor a warning."""
    regions = cfnlint.api.ManualArgs(regions=["eu-central-1"])
    assert [str(match) for match in cfnlint.api.lint(path.read_text(), config=regions)] == []


@pytest.mark.parametrize("path", AWS, ids=lambda path: path.stem)
def test_no_role_may_do_more_than_a_job_does(path: Path) -> None:
    """Actions are named one by one, and none is allowed on every resource."""
    found = statements(path)
    assert found
    for statement in found:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not [action for action in actions if "*" in action], statement["Sid"]
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        assert "*" not in resources, statement["Sid"]
        assert {"iam:PassRole"}.isdisjoint(actions) or "Condition" in statement


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_may_drop_no_table_that_readers_see(path: Path) -> None:
    """Only tables that are being built, whose names are ours; the databases are named by whoever makes the stack."""
    template = yaml.load(path.read_text(), _Template)  # noqa: S506 - a SafeLoader
    assert "Default" not in template["Parameters"]["GlueDatabases"]
    [drops] = [one for one in statements(path) if "glue:DeleteTable" in one["Action"]]
    assert drops["Action"] == "glue:DeleteTable"
    [tables] = [resource for resource in drops["Resource"] if ":table/" in resource]
    assert tables.endswith("/*" + BUILDING + "*")


def test_a_schedule_sends_what_submit_sends() -> None:
    """Its parameters are parts of that request; its token is new for each job."""
    template = yaml.load((INFRA / "aws" / "schedule.yml").read_text(), _Template)  # noqa: S506 - a SafeLoader
    role = "arn:aws:iam::123456789012:role/lakeingest"
    settings = {"application_id": "00f1abcd", "execution_role_arn": role, "region": "eu-central-1", "max_minutes": 90}
    service = EmrServerlessJobs(EmrServerless.model_validate({**settings, "bucket": "s3://company-lake/jobs"}))
    token, arguments = "one-for-each-job", ("run", "-c", "job/pipeline.yml")
    job = Job("shop", token, "s3://company-lake/jobs/a.py", arguments, {"job": "s3://a/b"}, {}, {"a": 'b "c" \\'})
    ours = service.request(job)
    values = read_parameters(schedule_parameters("shop", ours))
    assert values.keys() <= template["Parameters"].keys()
    text = template["Resources"]["Start"]["Properties"]["Target"]["Input"]
    sent = json.loads(re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text))
    assert sent.pop("ClientToken") == "<aws.scheduler.execution-id>"
    assert _in_camel_case(sent) == {key: value for key, value in ours.items() if key != "clientToken"}


def _in_camel_case(doc: Any) -> Any:
    """A request of EventBridge Scheduler as one of boto3: names of parameters begin with another kind of letter."""
    if isinstance(doc, list):
        return [_in_camel_case(one) for one in doc]
    if not isinstance(doc, dict):
        return doc
    kept = {"Tags", "Properties"}  # their keys are ours
    return {key[0].lower() + key[1:]: value if key in kept else _in_camel_case(value) for key, value in doc.items()}


def test_an_alarm_of_the_schedule_watches_what_there_is() -> None:
    """Each alarm tells the topic, and its dimension is a resource of the stack."""
    template = yaml.load((INFRA / "aws" / "schedule.yml").read_text(), _Template)  # noqa: S506 - a SafeLoader
    resources = template["Resources"]
    alarms = [one["Properties"] for one in resources.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    watched = {(alarm["Namespace"], alarm["MetricName"], alarm["Dimensions"][0]["Name"]) for alarm in alarms}
    assert watched == {
        ("AWS/Events", "Invocations", "RuleName"),
        ("AWS/Scheduler", "InvocationDroppedCount", "ScheduleGroup"),
    }
    assert {alarm["Dimensions"][0]["Value"] for alarm in alarms} == {"Succeeded", "Group"} <= resources.keys()
    assert all(alarm["AlarmActions"] == ["Topic"] for alarm in alarms)


def test_google_takes_the_schedule_and_its_alerts() -> None:
    """They are of the types of its clients; the schedule starts the workflow template, as an account."""
    job = json.loads((INFRA / "gcp" / "schedule.json").read_text())
    alerts = {path.stem: yaml.safe_load(path.read_text()) for path in (INFRA / "gcp").glob("alert-*.yml")}
    CLIENTS.run({"job": job, "policies": list(alerts.values())})
    template = yaml.safe_load((INFRA / "gcp" / "workflow-template.yml").read_text())
    assert job["httpTarget"]["uri"].endswith(f"/workflowTemplates/{template['id']}:instantiate")
    assert base64.b64decode(job["httpTarget"]["body"]) == b"{}"
    assert "@" in job["httpTarget"]["oauthToken"]["serviceAccountEmail"]
    name = job["name"].rpartition("/")[2]
    [condition] = alerts["alert-schedule"]["conditions"]
    assert f'"{name}"' in condition["conditionMatchedLog"]["filter"]
    cluster = template["placement"]["managedCluster"]["clusterName"]
    for condition in alerts["alert-jobs"]["conditions"]:
        [kind] = condition.keys() - {"displayName"}
        assert f'cluster_name = starts_with("{cluster}")' in condition[kind]["filter"]


FORMS = Engine(
    "check-jsonschema",
    ("check-jsonschema==0.39.0", "regress==2026.9.1"),
    """
from check_jsonschema import main
for kind, files in asked.items():
    try:
        main(["--builtin-schema", kind, *files])
    except SystemExit as ended:
        assert ended.code == 0, kind
""",
)


def test_workflows_and_forms_are_as_their_readers_want_them() -> None:
    """By the schemas that check-jsonschema ships."""
    folder = INFRA.parent / ".github"
    forms = [path for path in (folder / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    kinds = {
        "vendor.github-workflows": sorted((folder / "workflows").glob("*.yml")),
        "vendor.github-issue-forms": sorted(forms),
        "vendor.dependabot": [folder / "dependabot.yml"],
    }
    assert all(kinds.values())
    FORMS.run({kind: list(map(str, files)) for kind, files in kinds.items()})


def test_a_release_has_notes_and_one_version() -> None:
    """The tag is compared with it; the last released version has a part of CHANGELOG.md, below what comes after."""
    project = tomllib.loads((INFRA.parent / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    headings = re.findall(r"(?m)^## (.*)$", (INFRA.parent / "CHANGELOG.md").read_text())
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading)


RELEASE = yaml.safe_load((INFRA.parent / ".github" / "workflows" / "release.yml").read_text())["jobs"]


def test_a_release_names_its_repository_and_its_documents(tmp_path: Path) -> None:
    """The step adds them to pyproject.toml, which stays as it is otherwise, before anything is built of it."""
    names = [step.get("name") for step in RELEASE["build"]["steps"]]
    step = RELEASE["build"]["steps"][names.index("Name the repository and the documents in the packages")]
    assert names.index(step["name"]) < names.index("Build, check, install and run the packages")
    text = (INFRA.parent / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(text)
    names_of_run = {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "someone/lakeingest",
        "GITHUB_REPOSITORY_OWNER": "someone",
    }
    subprocess.run(["bash", "-euc", step["run"]], cwd=tmp_path, env=os.environ | names_of_run, check=True)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project == tomllib.loads(text)["project"] | {
        "urls": {
            "Documentation": "https://someone.github.io/lakeingest/latest/",
            "Source": "https://github.com/someone/lakeingest",
            "Issues": "https://github.com/someone/lakeingest/issues",
            "Changelog": "https://someone.github.io/lakeingest/latest/changelog/",
        }
    }


def step_of(job: str, name: str) -> str:
    """The script of a step of the release."""
    [script] = [step["run"] for step in RELEASE[job]["steps"] if step.get("name") == name]
    return str(script)


def test_a_release_lays_the_documents_of_all_releases_side_by_side(tmp_path: Path) -> None:
    """The newest is `latest`, too, by the numbers of its version; the list is of the form that the site asks for."""
    (tmp_path / "packed").mkdir()
    for version in ("0.9.0", "0.10.1", "0.10.0"):
        (tmp_path / "build" / "site").mkdir(parents=True, exist_ok=True)
        for page in ("index.html", "404.html"):
            (tmp_path / "build" / "site" / page).write_text(f"{page} of {version}")
        pack = step_of("build", "Build the documents").replace("make docs PYTHON=python", "mkdir -p dist")
        environment = os.environ | {"GITHUB_REF_NAME": f"v{version}"}
        subprocess.run(["bash", "-euc", pack], cwd=tmp_path, env=environment, check=True)
        [packed] = (tmp_path / "dist").glob("*.tgz")
        packed.rename(tmp_path / "packed" / packed.name)
    subprocess.run(["bash", "-euc", step_of("site", "Lay them side by side")], cwd=tmp_path, check=True)
    site = tmp_path / "site"
    for folder, version in {"0.9.0": "0.9.0", "0.10.1": "0.10.1", "latest": "0.10.1"}.items():
        assert (site / folder / "index.html").read_text() == f"index.html of {version}"
    assert "url=latest/" in (site / "index.html").read_text()
    assert (site / "404.html").read_text() == "404.html of 0.10.1"
    assert json.loads((site / "versions.json").read_text()) == [
        {"version": "0.10.1", "title": "0.10.1", "aliases": ["latest"]},
        {"version": "0.10.0", "title": "0.10.0", "aliases": []},
        {"version": "0.9.0", "title": "0.9.0", "aliases": []},
    ]


def test_what_publishes_runs_no_code_of_the_repository() -> None:
    """It may write the release, or the site; PyPI gets the packages alone."""
    assert RELEASE["publish"]["permissions"] == {"contents": "write", "id-token": "write"}
    assert RELEASE["site"]["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    for job in ("publish", "site"):
        assert not [step for step in RELEASE[job]["steps"] if "checkout" in step.get("uses", "")]
    settings = yaml.safe_load((INFRA.parent / "mkdocs.yml").read_text())
    assert f"-C {settings['site_dir']} ." in step_of("build", "Build the documents")
    assert step_of("publish", "Publish on PyPI").endswith("dist/*.whl dist/*.tar.gz")


def test_what_others_publish_is_pinned() -> None:
    """Actions by a commit, images by a version or a digest: a tag that moves would run code that nobody has seen."""
    workflows = "".join(path.read_text() for path in (INFRA.parent / ".github" / "workflows").glob("*.yml"))
    actions = re.findall(r"uses: (\S+)", workflows)
    assert actions
    assert all(re.search(r"@[0-9a-f]{40}$", action) for action in actions)
    services = yaml.safe_load((INFRA / "play" / "docker-compose.yml").read_text())["services"]
    images = [service["image"] for service in services.values() if "image" in service]
    assert all(re.search(r":v?\d+\.\d+(\.\d+)?$|@sha256:", image) for image in images)


def test_the_image_installs_what_is_locked() -> None:
    """Each package by its hash, and beside them lakeingest itself without what it needs."""
    text = (INFRA / "container" / "Containerfile").read_text()
    locked, ours = (set(line.split()) for line in re.findall(r"pip install (.+) \\$", text, re.MULTILINE))
    assert {"--require-hashes", "--no-deps", "-r", "requirements.lock"} <= locked
    assert {"--no-deps", "--no-build-isolation", "."} <= ours
    for name in ("requirements.lock", "requirements-dev.lock"):
        packages = re.split(r"(?m)^(?=\w)", (INFRA.parent / name).read_text())[1:]
        assert len(packages) > 50
        assert [one for one in packages if not re.match(r"\S+==\S+", one) or "--hash=sha256:" not in one] == []


def test_dataproc_takes_the_workflow_template() -> None:
    """It is of Google's own type, and its job has the settings that `submit dataproc` gives a job."""
    doc = yaml.safe_load((INFRA / "gcp" / "workflow-template.yml").read_text())
    found = dataproc_v1.WorkflowTemplate.pb()()
    json_format.ParseDict(doc, found)
    folders = ("job", *(name.partition("-")[0] for name in dependencies_names([])))
    job = Job("shop", "t", "gs://company-lake/jobs/a.py", (), dict.fromkeys(folders, "gs://a/b"), {}, {})
    service = DataprocJobs(Dataproc(project="p", region="r", cluster="c", bucket="gs://company-lake/jobs"))
    ours = service.request(job)["job"]["pyspark_job"]
    [pyspark] = [one.pyspark_job for one in found.jobs]
    assert {uri.partition("#")[2] for uri in pyspark.archive_uris} == set(folders)
    wanted = {key: value for key, value in ours["properties"].items() if "LAKEINGEST_JOB" not in key}
    assert dict(pyspark.properties) == wanted


def test_the_dag_submits_a_pipeline() -> None:
    """It is Python, and its command has the options of ours; a person's exit codes are not retried."""
    tree = ast.parse((INFRA / "airflow" / "lakeingest_dag.py").read_text())
    [command] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COMMAND"
    ]
    words = shlex.split(next(line for line in command.splitlines() if line.startswith("lakeingest")))
    assert words[:4] == ["lakeingest", "submit", "emr-serverless", "--wait"]
    assert f"0|{Retryable.exit_code}) exit $code" in command


def test_the_cronjob_runs_a_pipeline() -> None:
    """One run at a time; mounts have volumes; what a person has to mend is not tried again."""
    doc = yaml.safe_load((INFRA / "kubernetes" / "cronjob.yml").read_text())
    assert (doc["apiVersion"], doc["kind"], doc["spec"]["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
    job = doc["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    [rule] = job["podFailurePolicy"]["rules"]
    assert pod["restartPolicy"] == "Never"  # which Kubernetes demands of a podFailurePolicy
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert OperatorNeeded.exit_code in rule["onExitCodes"]["values"]
    assert Retryable.exit_code not in rule["onExitCodes"]["values"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["args"][0] == "run"
    assert not {"requests", "limits"} - container["resources"].keys()
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "@sha256:" in container["image"]
    assert not pod["automountServiceAccountToken"]


def test_the_image_copies_what_is_there() -> None:
    """Each file that it takes from here exists, it has the uid of the CronJob, and its program is ours."""
    text = (INFRA / "container" / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert copied
    for name in (word for line in copied for word in line.split()):
        assert (INFRA.parent / name).exists(), name
    assert 'ENTRYPOINT ["lakeingest"]' in text
    assert "runAsUser: 10001" in (INFRA / "kubernetes" / "cronjob.yml").read_text()
    assert "--uid 10001" in text


def test_the_services_to_play_with_are_of_the_compose_specification() -> None:
    """By the schema of Docker's own package; a key that is misspelt is found."""
    schema = json.loads((COMPOSE.installed() / "compose" / "config" / "compose_spec.json").read_text())
    document = yaml.safe_load((INFRA / "play" / "docker-compose.yml").read_text())
    validator = jsonschema.Draft201909Validator(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    document["services"]["mysql"]["prots"] = document["services"]["mysql"].pop("ports")
    assert "prots" in "".join(error.message for error in validator.iter_errors(document))


def test_the_services_to_play_with_fit_each_other() -> None:
    """pipeline.yml names them, each file that is mounted exists, and nobody waits for a service that is not there."""
    folder = INFRA / "play"
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        for mount in service.get("volumes", ()):
            if mount.startswith("./"):
                assert (folder / mount.partition(":")[0]).exists()
    config = load_config(folder / "pipeline.yml", environment={"MYSQL_PASSWORD": "play"})
    named = {config.source.host, *re.findall(r"http://(\w+)", config.target.model_dump_json(exclude={"catalog"}))}
    named |= set(re.findall(r"http://(\w+)", config.target.catalog.address))
    assert named == {"mysql", "s3", "catalog"}
    context = folder / services["lakeingest"]["build"]["context"]
    assert (context / services["lakeingest"]["build"]["dockerfile"]).exists()
