"""A job on EMR Serverless, as a dry run shows it: accepted by the service's model and by moto, with no secret in it."""

import json
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from lakeingest.cli import app
from lakeingest.commands.submit import Submission, submit
from lakeingest.config import FORMATS
from lakeingest.errors import ConfigError, NotBuiltYet, OperatorNeeded

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "emr-serverless.md").read_text()
REGION = "eu-central-1"
DRIVER = "spark.emr-serverless.driverEnv"

pytestmark = pytest.mark.long("packs all dependencies of a job, fetched from the package registry")

Pipeline = Callable[..., Path]


def properties(submission: Submission) -> dict[str, str]:
    """Spark's settings, from the parameters and the defaults."""
    parameters = submission.request["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    words = parameters.split(" ")
    assert set(words[::2]) == {"--conf"}
    [defaults] = submission.request["configurationOverrides"]["applicationConfiguration"]
    assert defaults["classification"] == "spark-defaults"
    answer: dict[str, str] = dict(word.split("=", 1) for word in words[1::2])
    assert answer.keys().isdisjoint(defaults["properties"])
    answer.update(defaults["properties"])
    return answer


@mock_aws
def test_the_service_takes_the_request_as_it_is_printed(pipeline: Pipeline) -> None:
    """The files can be put where the request looks for them, and the job that starts is the one that was shown."""
    emr, s3 = boto3.client("emr-serverless", region_name=REGION), boto3.client("s3", region_name=REGION)
    made = emr.create_application(name="lake", releaseLabel="emr-7.1.0", type="SPARK", clientToken="a")
    s3.create_bucket(Bucket="company", CreateBucketConfiguration={"LocationConstraint": REGION})
    path, application = pipeline(), made["applicationId"]
    changed = [f"submit.emr-serverless.application_id={application}", "submit.emr-serverless.max_minutes=90"]
    said = CliRunner().invoke(
        app,
        ["submit", "emr-serverless", "--dry-run", "--json", "-c", str(path), "--set", changed[0], "--set", changed[1]],
    )
    assert said.exception is None
    request = json.loads(said.output)
    started = emr.start_job_run(**request)
    run = emr.get_job_run(applicationId=application, jobRunId=started["jobRunId"])["jobRun"]
    assert run["applicationId"] == application
    for key, shown in (
        ("executionRole", "executionRoleArn"),
        ("jobDriver", "jobDriver"),
        ("configurationOverrides", "configurationOverrides"),
        ("executionTimeoutMinutes", "executionTimeoutMinutes"),
        ("name", "name"),
        ("tags", "tags"),
    ):
        assert run[key] == request[shown], key
    job = request["jobDriver"]["sparkSubmit"]
    assert job["entryPointArguments"] == ["run", "-c", "job/pipeline.yml", "--set", changed[0], "--set", changed[1]]

    uploads = submit(path).uploads
    for upload in uploads:
        bucket, key = upload.uri.removeprefix("s3://").split("/", 1)
        s3.upload_file(str(upload.path), bucket, key)
    looked_for = re.findall(r"s3://[^#, ]+(?=#)", job["sparkSubmitParameters"])
    assert {job["entryPoint"], *looked_for} == {upload.uri for upload in uploads}
    sizes = {f"s3://company/{one['Key']}": one["Size"] for one in s3.list_objects_v2(Bucket="company")["Contents"]}
    assert sizes == {upload.uri: upload.path.stat().st_size for upload in uploads}


def test_spark_submit_has_the_settings_of_a_session_here(pipeline: Pipeline) -> None:
    """The catalog, the time zone and the jars; Python and its path for the driver and the executors."""
    answer = properties(submit(pipeline(), ["spark.conf={spark.executor.cores: '4', spark.sql.session.timeZone: Z}"]))
    assert answer["spark.sql.catalog.lake.warehouse"] == "s3://company/lake"
    assert answer["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert answer["spark.jars.packages"] == FORMATS["iceberg"].jar
    assert (answer["spark.executor.cores"], answer["spark.sql.session.timeZone"]) == ("4", "Z")
    assert properties(submit(pipeline()))["spark.sql.session.timeZone"] == "UTC"
    for side in (DRIVER, "spark.executorEnv"):
        assert answer[f"{side}.PYTHONPATH"] == "./job:./dependencies"
        assert answer[f"{side}.PYSPARK_PYTHON"] == "/usr/bin/python3.11"


def test_jars_that_are_there_are_not_fetched(pipeline: Pipeline) -> None:
    """With `provided` none is named; named ones are taken from where they are; a setting of the user's wins."""
    answer = properties(submit(pipeline(), ["spark.jars=provided"]))
    assert {"spark.jars", "spark.jars.packages"}.isdisjoint(answer)
    answer = properties(submit(pipeline(), ["spark.jars=['s3://company/a.jar', 'local:///b.jar']"]))
    assert answer["spark.jars"] == "s3://company/a.jar,local:///b.jar"
    answer = properties(submit(pipeline(), ["spark.conf={spark.jars.packages: 'a:b:1'}"]))
    assert answer["spark.jars.packages"] == "a:b:1"


def test_hudi_needs_no_catalog(pipeline: Pipeline) -> None:
    """Its tables are found by their folders, on a cluster as here."""
    path = pipeline(pipeline().read_text().replace("catalog: {type: glue}", "format: hudi"))
    answer = properties(submit(path))
    assert answer["spark.sql.extensions"] == "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
    assert answer["spark.jars.packages"] == FORMATS["hudi"].jar


def test_each_submission_is_a_job_of_its_own(pipeline: Pipeline) -> None:
    """Asked twice with one token, the service starts one job; two submissions differ in that alone."""
    one, other = dict(submit(pipeline()).request), dict(submit(pipeline()).request)
    assert one.pop("clientToken") != other.pop("clientToken")
    assert one == other


def test_a_secret_is_a_reference(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variables are here, the job has its own: the file goes as it is written."""
    monkeypatch.setenv("MYSQL_PASSWORD", "hush-hush")
    monkeypatch.setenv("DB_HOST", "elsewhere")
    path = pipeline(pipeline().read_text().replace("user: lake", "user: '${DB_USER}'"))
    made = submit(path)
    assert made.variables == {"DB_USER": None, "MYSQL_PASSWORD": "lake/mysql"}
    answer = properties(made)
    assert answer[f"{DRIVER}.MYSQL_PASSWORD"] == "EMR.secret@lake/mysql"
    assert f"{DRIVER}.DB_USER" not in answer
    assert re.search(answer["spark.redaction.regex"], f"{DRIVER}.ANY")
    with tarfile.open(made.uploads[1].path) as job:
        kept = job.extractfile("pipeline.yml")
        assert kept is not None
        assert kept.read() == path.read_bytes()
    assert not re.search("hush-hush|elsewhere", json.dumps(dict(made.request)))


def test_the_dry_run_says_what_goes_where(pipeline: Pipeline) -> None:
    """Each file with its place, each variable with where it comes from, and the request."""
    path = pipeline(pipeline().read_text().replace("user: lake", "user: '${DB_USER}'"))
    said = CliRunner().invoke(app, ["submit", "emr-serverless", "--dry-run", "-c", str(path)])
    assert said.exception is None
    assert said.output.startswith(f"dry run: nothing is sent to EMR Serverless in {REGION}\n")
    assert re.search(
        r"^upload    \S+/build/submit/job-\w+\.tar\.gz \(.*\) → s3://company/jobs/job-", said.output, re.MULTILINE
    )
    assert "variable  MYSQL_PASSWORD: from the secret lake/mysql\n" in said.output
    assert "variable  DB_USER: not among the secrets: the application has to set it\n" in said.output
    request: dict[str, Any] = json.loads(said.output.partition("start_job_run ")[2])
    assert request["applicationId"] == "00f1abcdefgh0001"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("submit.emr-serverless.application_id=''", "submit.emr-serverless.application_id: .* min length: 1"),
        ("submit.emr-serverless.application_id=UPPER", "submit.emr-serverless.application_id: .* not of the form"),
        (f"submit.emr-serverless.application_id={'a' * 65}", "submit.emr-serverless.application_id: .* longer than 64"),
        ("submit.emr-serverless.execution_role_arn=arn:aws", "execution_role_arn: .* min length: 20"),
        (
            "submit.emr-serverless.execution_role_arn=arn:aws:iam::12345:role/lakeingest",
            "submit.emr-serverless.execution_role_arn: .* not of the form",
        ),
        (f"spark.conf={{a: {'b' * 1025}}}", "spark.conf .* longer than 1024"),
        ("spark.conf={spark.archives: a b}", "spark: spark.archives may hold no blanks"),
        ("spark.jars=[a.jar]", r"spark.jars: \S+/a.jar is on this machine"),
        ("spark.conf={a: '${B}'}", r"spark holds \$\{B\}, which only the job knows"),
        ("target.warehouse='s3://${BUCKET}/lake'", r"target holds \$\{BUCKET\}, which only the job knows"),
        ("source.tls={ca: ca.pem}", "source.tls.ca: .* is on this machine"),
        ("source.password='${MYSQL_PASSWORD}'", "--set source.password: a job has the file as it is written"),
        ("submit={}", "submit.emr-serverless is required"),
    ],
)
def test_what_a_job_cannot_be_made_of_names_its_key(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, override: str, message: str
) -> None:
    """In one line, before anything is fetched."""
    path = pipeline()
    for built in (path.parent / "build" / "submit").iterdir():
        built.unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ConfigError, match=message) as refused:
        submit(path, [override])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("password", ["hush-hush", "${MYSQL_PASSWORD:-hush-hush}", "hush-${MYSQL_PASSWORD}"])
def test_a_password_in_the_file_is_not_shipped(pipeline: Pipeline, password: str) -> None:
    """Neither as it is nor as a default, and the message does not show it."""
    path = pipeline(pipeline().read_text().replace("${MYSQL_PASSWORD}", password))
    with pytest.raises(ConfigError, match=r"source\.password is written out") as refused:
        submit(path)
    assert "hush" not in str(refused.value)


def test_a_path_is_refused_before_anything_is_built(pipeline: Pipeline) -> None:
    """The embedded lake of this machine is no target of a job."""
    with pytest.raises(ConfigError, match=r"target\.warehouse: .*/lake is on this machine"):
        submit(pipeline(pipeline().read_text().replace("s3://company/lake", "/lake")))
    with pytest.raises(NotBuiltYet, match="sql is not built yet on a cluster"):
        submit(pipeline(pipeline().read_text().replace("catalog: {type: glue}, ", "")))


def test_boto3_is_an_extra(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message is the line that installs it."""
    path = pipeline()
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(OperatorNeeded, match=r"pip install 'lakeingest\[aws\]'"):
        submit(path)


def test_a_folder_that_cannot_be_written_is_named(pipeline: Pipeline) -> None:
    """The files of a job are built beside pipeline.yml."""
    path = pipeline()
    (path.parent / "build").rename(path.parent / "away")
    (path.parent / "build").write_text("a file of somebody")
    with pytest.raises(OperatorNeeded, match=r"cannot be built in \S+/build/submit: .*; make it writable"):
        submit(path)


def test_the_example_of_the_documents_is_a_job(pipeline: Pipeline) -> None:
    """The keys that a reader copies make a request as they stand."""
    examples = re.findall(r"^```ya?ml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    [example] = [text for text in examples if "submit:" in text]
    made = submit(pipeline(f'name: shop\nsource: {{host: db, user: lake, password: "${{MYSQL_PASSWORD}}"}}\n{example}'))
    assert list(made.variables) == ["MYSQL_PASSWORD"]
    assert made.variables["MYSQL_PASSWORD"] is not None
