"""A job on EMR Serverless, as a dry run shows it: accepted by the service's model and by moto, with no secret in it."""

import json
import re
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from lakeingest.cli import app
from lakeingest.commands import submit as stage
from lakeingest.commands.submit import Submission
from lakeingest.config import FORMATS, load_config
from lakeingest.errors import ConfigError, NotBuiltYet, OperatorNeeded

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "emr-serverless.md").read_text()
REGION = "eu-central-1"
DRIVER = "spark.emr-serverless.driverEnv"

pytestmark = pytest.mark.long("packs all dependencies of a job, fetched from the package registry")

Pipeline = Callable[..., Path]


def submit(path: Path, overrides: Sequence[str] = ()) -> Submission:
    """The job of EMR Serverless that is made of a pipeline.yml."""
    return stage.submit(path, "emr-serverless", overrides)


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


def test_a_request_has_what_spark_must_know_at_its_start(pipeline: Pipeline) -> None:
    """Python, its path and the jars; the session of the job adds the catalog, so that no secret is in a request."""
    answer = properties(submit(pipeline(), ["spark.conf={spark.executor.cores: '4', spark.sql.session.timeZone: Z}"]))
    assert answer["spark.jars.packages"].split(",")[0] == FORMATS["iceberg"].jar
    assert (answer["spark.executor.cores"], answer["spark.sql.session.timeZone"]) == ("4", "Z")
    assert not [key for key in answer if key.startswith("spark.sql.catalog.")]
    for side in (DRIVER, "spark.executorEnv"):
        assert answer[f"{side}.PYTHONPATH"] == "./job:./dependencies1:./dependencies2:./dependencies3"
        assert answer[f"{side}.PYSPARK_PYTHON"] == "/usr/bin/python3.11"


def test_jars_that_are_there_are_not_fetched(pipeline: Pipeline) -> None:
    """With `provided` they are those of EMR's image; named ones are taken from where they are; settings win."""
    answer = properties(submit(pipeline(), ["spark.jars=provided"]))
    assert "spark.jars.packages" not in answer
    assert answer["spark.jars"] == "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
    answer = properties(submit(pipeline(), ["spark.jars=['s3://company/a.jar', 'local:///b.jar']"]))
    assert answer["spark.jars"] == "s3://company/a.jar,local:///b.jar"
    answer = properties(submit(pipeline(), ["spark.conf={spark.jars.packages: 'a:b:1'}"]))
    assert answer["spark.jars.packages"] == "a:b:1"


def test_a_job_that_would_be_refused_there_is_refused_here(pipeline: Pipeline) -> None:
    """Before anything is built; what a run cannot do yet, a job cannot do either."""
    with pytest.raises(NotBuiltYet, match="state: az://company/state"):
        submit(pipeline(pipeline().read_text().replace("s3://company/state", "az://company/state")))


def test_each_submission_is_a_job_of_its_own(pipeline: Pipeline) -> None:
    """Two submissions have two tokens, and differ in nothing else."""
    one, other = submit(pipeline()), submit(pipeline())
    assert one.job.token != other.job.token
    assert json.dumps(one.request).replace(one.job.token, other.job.token) == json.dumps(other.request)


def test_a_job_that_was_not_answered_keeps_its_token(pipeline: Pipeline) -> None:
    """The service then has one job of both requests; another job has another token."""
    made = submit(pipeline())
    made.pending.write_text(json.dumps({"token": made.job.token, "job": stage.job_digest(made.job)}))
    assert submit(pipeline()).request == made.request
    assert submit(pipeline(), ["spark.conf={a: b}"]).job.token != made.job.token


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


def test_the_certificates_that_prove_the_source_are_shipped(pipeline: Pipeline) -> None:
    """Wherever they are here, a job has them beside its pipeline.yml, and reads them there."""
    path = pipeline()
    authority = path.parent / "certificates" / "bundle.pem"
    authority.parent.mkdir()
    authority.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    made = submit(path, ["source.tls={ca: certificates/bundle.pem}"])
    assert made.job.arguments[-2:] == ("--set", "source.tls.ca=source.tls.ca.pem")
    with tarfile.open(made.uploads[1].path) as job:
        kept = job.extractfile("source.tls.ca.pem")
        assert kept is not None
        (path.parent / "there").mkdir()
        (path.parent / "there" / "source.tls.ca.pem").write_bytes(kept.read())
    (path.parent / "there" / "pipeline.yml").write_bytes(path.read_bytes())
    there = load_config(
        path.parent / "there" / "pipeline.yml",
        ["source.tls={ca: certificates/bundle.pem}", made.job.arguments[-1]],
        {"MYSQL_PASSWORD": "p"},
    )
    assert there.source.tls_mode == "verify_identity"
    assert there.source.tls.text("ca") == authority.read_text()


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
    assert "variable  DB_USER: not among the secrets: the service has to set it\n" in said.output
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
        ("source.tls={ca: ca.pem}", "source.tls.ca: .*/ca.pem cannot be read"),
        ("spark.conf={a: 'aws-secretsmanager://b'}", "spark.conf: a: Spark's settings are no secrets"),
        ("target.storage={properties: {s3.secret-access-key: x}}", "properties.s3.secret-access-key is written out"),
        ("target.catalog={type: sql, uri: 'postgresql://a:b@c/d'}", "target.catalog.uri is written out"),
        ("metrics={push: 'https://a', push_user: b, push_password: c}", "metrics.push_password is written out"),
        ("notify={webhook: 'https://a/token'}", "notify.webhook is written out"),
        ("notify={openlineage: {url: 'https://a', api_key: b}}", "notify.openlineage.api_key is written out"),
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
    with pytest.raises(ConfigError, match="the embedded catalog is a file of this machine"):
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
    made = submit(pipeline(example))
    assert made.variables == {}
