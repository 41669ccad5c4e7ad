"""The commands that `submit --init` prints, run as they are printed: by the clouds' own tools, on servers of ours."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest
import yaml
from moto.server import ThreadedMotoServer

from lakeingest.cluster.stack import read_parameters
from lakeingest.cluster.templates import OPEN
from lakeingest.commands.deployment import Deployment, deploy
from tests.cluster.test_deployment import LAPTOP, ON_DATAPROC, ON_EMR, REGION, ROLE
from tests.servers.answering import answering
from tests.servers.engines import Engine

SECRET = '{"password": "a \\"b\\" $c"}'
AWS = Engine(
    "the command line of AWS",
    ("awscli==1.46.3", "colorama==0.4.6", "docutils==0.19", "pyasn1==0.6.1", "rsa==4.7.2"),
    """
import os
from awscli.clidriver import main
os.chdir(asked["folder"])
sys.argv = asked["words"]
code = main()
if code:
    sys.exit(code)
""",
)


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """A pipeline.yml in a folder whose name a shell would divide."""
    folder = tmp_path / "it's my shop"
    folder.mkdir()
    (folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
    (folder / "pipeline.yml").write_text(LAPTOP)
    return folder / "pipeline.yml"


def commands(made: Deployment, program: str) -> list[str]:
    """The printed lines that run this program, without their numbers and what stands before it."""
    return [line[line.index(f"{program} ") :] for line in made.steps if re.search(rf"(^\d+\. |: ){program} ", line)]


def cut(path: Path) -> None:
    """Leave the parameters of a template, and a topic: moto makes no application, secret or schedule of a template."""
    text = path.read_text().partition("\nResources:")[0]
    path.write_text(f"{text}\nResources: {{Topic: {{Type: AWS::SNS::Topic}}}}\n")


def fill_in(path: Path, values: dict[str, str]) -> None:
    """Put a value in place of each that only a person knows."""
    text = path.read_text()
    assert {name for name, value in read_parameters(text).items() if value == OPEN} == values.keys()
    for name, value in values.items():
        text = text.replace(f'"{name}={OPEN}"', f'"{name}={value}"')
    path.write_text(text)


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty moto, which AWS's tools and ours ask."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    boto3.client("s3", region_name=REGION).create_bucket(
        Bucket="company-lake", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    yield url
    server.stop()


@pytest.mark.long("starts aws many times")
def test_the_commands_for_aws_make_both_stacks(moto: str, laptop: Path) -> None:
    """AWS's own command line takes each of them; the stacks have all parameters, and the secret has the password."""
    first = deploy(laptop, "emr-serverless", ON_EMR)
    folder = laptop.parent
    ec2 = boto3.client("ec2", region_name=REGION)
    vpc, subnet = ec2.describe_vpcs()["Vpcs"][0]["VpcId"], ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    fill_in(folder / "emr-serverless" / "stack.json", {"Vpc": vpc, "Subnets": subnet})
    cut(folder / "emr-serverless" / "stack.yml")
    (folder / "secret.json").write_text(SECRET)
    secrets = boto3.client("secretsmanager", region_name=REGION)
    secrets.create_secret(Name="lakeingest/my_shop")  # as the stack does
    made, put = commands(first, "aws")
    for line in (made, put):
        AWS.run({"folder": str(folder), "words": shlex.split(line)})
    assert secrets.get_secret_value(SecretId="lakeingest/my_shop")["SecretString"] == SECRET

    # moto has no outputs of stacks that come from a change set
    ids = ["submit.emr-serverless.application_id=00f1abcd", f"submit.emr-serverless.execution_role_arn={ROLE}"]
    second = deploy(laptop, "emr-serverless", [*ON_EMR, *ids])
    fill_in(folder / "emr-serverless" / "schedule.json", {"Email": "data@example.com"})
    cut(folder / "emr-serverless" / "schedule.yml")
    [scheduled] = commands(second, "aws")
    AWS.run({"folder": str(folder), "words": shlex.split(scheduled)})
    cloudformation = boto3.client("cloudformation", region_name=REGION)
    stacks = {one["StackName"]: one for one in cloudformation.describe_stacks()["Stacks"]}
    assert stacks.keys() == {"lakeingest-my-shop", "lakeingest-my-shop-schedule"}
    for name, file in (("lakeingest-my-shop", "stack"), ("lakeingest-my-shop-schedule", "schedule")):
        assert stacks[name]["StackStatus"] == "CREATE_COMPLETE"
        given = {one["ParameterKey"]: one["ParameterValue"] for one in stacks[name]["Parameters"]}
        wanted = read_parameters((folder / "emr-serverless" / f"{file}.json").read_text())
        assert wanted.keys() <= given.keys()
        # moto shows a list of ids in another form
        assert {name for name, value in wanted.items() if given[name] != value} <= {"Subnets"}


@dataclass
class Google:
    """A server that notes what it is asked, and answers that it was done."""

    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    def serve(self) -> ThreadingHTTPServer:
        """A server that answers for it."""
        note = self.asked.append

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                assert self.headers["Authorization"] == "Bearer a-token"
                place = self.path.partition("?")[0]
                note((self.command, place, body))
                name = place.strip("/").partition("/")[2].replace(":addVersion", "/versions/1")
                answer = json.dumps({"name": name}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        return server


@pytest.fixture
def google() -> Iterator[Google]:
    """Google's services, as far as the commands need an answer."""
    found = Google()
    with answering(found.serve()):
        yield found


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not on PATH, and in no package registry")
@pytest.mark.long("starts gcloud many times")
def test_the_commands_for_google_send_the_files(google: Google, laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's own command line takes each of them, and sends what the files say; no part is lost or unknown."""
    made = deploy(laptop, "dataproc", ON_DATAPROC)
    folder = laptop.parent
    for path in (folder / "dataproc").iterdir():
        path.write_text(path.read_text().replace(f"'{OPEN}'", "someone").replace(f'"{OPEN}"', '"someone"'))
    (folder / "token").write_text("a-token")
    (folder / "password.txt").write_text("secret")
    for name, value in {
        "CONFIG": str(folder / "gcloud"),
        "AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "CORE_DISABLE_PROMPTS": "1",
        "CORE_DISABLE_USAGE_REPORTING": "1",
        "COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        **{f"API_ENDPOINT_OVERRIDES_{api}": f"{google.url}/" for api in ("SECRETMANAGER", "DATAPROC", "MONITORING")},
    }.items():
        monkeypatch.setenv(f"CLOUDSDK_{name}", value)
    lines = [*commands(made, "gcloud"), *commands(made, "curl")]
    assert len(lines) == 5
    for line in lines:
        here = line.replace("https://cloudscheduler.googleapis.com", google.url)
        done = subprocess.run(here, shell=True, cwd=folder, capture_output=True, text=True, timeout=600, check=False)  # noqa: S602
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    sent = {(how, place): json.loads(body) for how, place, body in google.asked if how != "GET"}
    root = "/v1/projects/company"
    workflow, schedule, jobs, starts = (
        yaml.safe_load((folder / "dataproc" / name).read_text())
        for name in ("workflow-template.yml", "schedule.json", "alert-jobs.yml", "alert-schedule.yml")
    )
    place = f"{root}/regions/europe-west1/workflowTemplates/lakeingest-my-shop"
    assert sent.pop(("PUT", place)) == workflow | {"name": place.removeprefix("/v1/")}
    assert sent.pop(("POST", f"{root}/locations/europe-west1/jobs")) == schedule
    assert sent.pop(("POST", f"{root}/secrets"))["replication"] == {"automatic": {}}
    assert sent.pop(("POST", f"{root}/secrets/lakeingest-my_shop:addVersion"))["payload"]["data"] == "c2VjcmV0"
    alerts = [json.loads(body) for _, place, body in google.asked if place == "/v3/projects/company/alertPolicies"]
    assert alerts == [jobs, starts]
    assert sent.keys() == {("POST", "/v3/projects/company/alertPolicies")}
