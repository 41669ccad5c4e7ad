"""Deployment: what makes a pipeline of this machine a scheduled job of a service, as files for the service's own tools.

The command sends nothing. It writes missing files and overwrites none. For EMR Serverless a person runs it twice,
because the ids of the application and its role are known only when the stack is there.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lakeingest.cluster.stack import OUTPUTS, schedule_parameters, stack_name, stack_outputs, stack_parameters
from lakeingest.cluster.templates import OPEN, template
from lakeingest.cluster.workflow import workflow_files, workflow_name
from lakeingest.commands.hand_over import TOKEN
from lakeingest.commands.report import Report
from lakeingest.commands.submit import assert_job, load_service, request_of
from lakeingest.config.load import read_document, validate
from lakeingest.config.secrets import is_reference
from lakeingest.config.variables import VARIABLE
from lakeingest.errors import ConfigError, UsageError

# What pipeline.yml, or an option --set, has to say about a service, and the scheme of its store
_ASKED: Mapping[str, tuple[Sequence[str], str]] = {
    "emr-serverless": (("region", "bucket"), "s3"),
    "dataproc": (("project", "region", "cluster", "bucket"), "gs"),
}


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """A file of a deployment. `is_new` is False if the file was there already, and was not changed."""

    purpose: str
    path: Path
    is_new: bool


@dataclass(frozen=True, slots=True, repr=False)
class Deployment(Report):
    """The files of a deployment, and the commands that come next, line by line."""

    files: tuple[DeploymentFile, ...]
    steps: tuple[str, ...]

    headers = ("for", "file", "written")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each file."""
        for file in self.files:
            yield file.purpose, file.path, "now" if file.is_new else "before, and kept"

    @property
    def notes(self) -> Sequence[str]:
        """The commands that come next."""
        return self.steps


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pipeline.yml, and what it says about the service `key`; `bucket` is the name of the service's bucket."""

    path: Path
    key: str
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    scheme: str
    bucket: str

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return str(self.document["name"])

    @property
    def file(self) -> Path:
        """The pipeline.yml of the service. It is beside `path`, so that relative paths mean the same in both."""
        return self.path.with_name(f"{self.path.stem}-{self.key}{self.path.suffix}")

    @property
    def folder(self) -> Path:
        """The folder of the templates."""
        return self.path.parent / self.key

    @property
    def has_secret(self) -> bool:
        """Whether the password is in the service's own store of secrets already."""
        password = self.document["source"].get("password")
        return is_reference(password) and not password.startswith("file://")


def deploy(path: Path, key: str, overrides: Sequence[str] = ()) -> Deployment:
    """Write the missing files of a scheduled job of the service `key`: its pipeline.yml, templates and parameters.

    The tables and rules are those of the pipeline.yml at `path`. The copy is a new one, in the service's bucket; the
    password is a reference to the service's store of secrets. For EMR Serverless, CloudFormation is asked whether the
    pipeline's stack is there.

    Raises UsageError if the service has no templates, or if a file cannot be written; ConfigError if pipeline.yml has
    mistakes, does not say enough about the service, or holds what must not be sent; and the errors of `request_of`.
    """
    asked = _asked(path, key, overrides)
    files, ids = [], {}  # `ids`: of the application and its role, from pipeline.yml or else from the stack
    if key == "emr-serverless" and not asked.file.exists():
        ids = {name: asked.settings[name] for name in OUTPUTS.values() if asked.settings.get(name)}
        if len(ids) < len(OUTPUTS):
            files = _stack_files(asked)
            found = stack_outputs(stack_name(asked.name), asked.settings["region"])
            if found is None:
                return Deployment(tuple(files), _stack_steps(asked, overrides))
            ids = found
    files.append(_job_file(asked, ids))
    # The request comes last, because it needs the file
    request = request_of(asked.file, key, TOKEN)
    if key == "emr-serverless":
        texts = {
            "schedule.yml": template("aws/schedule.yml"),
            "schedule.json": schedule_parameters(asked.name, request),
        }
    else:
        texts = workflow_files(asked.name, load_service(asked.file, key).config, request)
    files += [_written("schedule and alarms", asked.folder / name, text) for name, text in texts.items()]
    steps = _schedule_steps(asked) if key == "emr-serverless" else _workflow_steps(asked)
    return Deployment(tuple(files), steps)


def _asked(path: Path, key: str, overrides: Sequence[str]) -> _Asked:
    """The pipeline.yml, without mistakes, and what it says about the service."""
    if key not in _ASKED:
        raise UsageError(f"--init: there are templates for {' and '.join(_ASKED)}, and none for {key}")
    path = path.resolve()
    document = read_document(path, overrides)
    submit = document.get("submit")
    settings = submit.get(key) if isinstance(submit, dict) else None
    settings = settings if isinstance(settings, dict) else {}
    names, scheme = _ASKED[key]
    missing = [f"submit.{key}.{name}" for name in names if not isinstance(settings.get(name), str)]
    rest = {name: value for name, value in document.items() if name != "submit"}
    validate(rest, path.parent)  # raises the errors of mistakes
    if missing:
        raise ConfigError(f"{path} does not have {', '.join(missing)}; write them there, or add --set {missing[0]}=…")
    made_of = {"name": rest["name"]} | {f"submit.{key}.{name}": settings[name] for name in names}
    if variables := [one for one, value in made_of.items() if VARIABLE.search(value)]:
        raise ConfigError(
            f"{path}: {variables[0]} holds the variable {made_of[variables[0]]}, but resources get their names from it;"
            f" write the value out, or add --set {variables[0]}=…"
        )
    bucket = urlsplit(settings["bucket"])
    if bucket.scheme != scheme or not bucket.hostname:
        raise ConfigError(f"submit.{key}.bucket: {settings['bucket']}: wanted a bucket such as {scheme}://company-lake")
    return _Asked(path, key, rest, settings, scheme, bucket.netloc)


def _stack_files(asked: _Asked) -> list[DeploymentFile]:
    """Write the template of the stack and its parameters; existing files are kept."""
    include = asked.document["tables"].get("include", ())
    parameters = stack_parameters(asked.name, asked.bucket, include, has_secret=asked.has_secret)
    texts = {"stack.yml": template("aws/emr-serverless.yml"), "stack.json": parameters}
    return [_written("application, role, secret", asked.folder / name, text) for name, text in texts.items()]


def _job_file(asked: _Asked, ids: Mapping[str, str]) -> DeploymentFile:
    """Write the pipeline.yml of the service. An existing file is kept, and is checked when the request is made."""
    document = _moved(asked, ids)
    text = f"# {asked.path.name} on {asked.key}: a separate copy with its own state.\n" + yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True
    )
    if not asked.file.exists():
        # before the file is written, because the document may hold a secret that pipeline.yml writes out
        assert_job(document, asked.path.parent)
    return _written("the pipeline on the service", asked.file, text)


def _moved(asked: _Asked, ids: Mapping[str, str]) -> dict[str, Any]:
    """The document for the service: warehouse and state in its bucket, the password in a secret, its own jars.

    The embedded catalog is a file of this machine, so it is left out: Iceberg on EMR Serverless uses Glue instead. On
    other services, `assert_job` refuses a document that needs a catalog and has none.
    """
    root = f"{asked.scheme}://{asked.bucket}"
    old = asked.document.get("target") or {}
    catalog = old.get("catalog") or {}
    is_embedded = catalog.get("type", "sql") == "sql" and "uri" not in catalog
    target = {name: value for name, value in old.items() if name not in {"catalog", "storage"}}
    target["warehouse"] = f"{root}/warehouse"
    if not is_embedded:
        target["catalog"] = catalog
    elif asked.key == "emr-serverless" and target.get("format", "iceberg") == "iceberg":
        target["catalog"] = {"type": "glue"} | {key: value for key, value in catalog.items() if key == "name"}
    source = dict(asked.document["source"])
    if not asked.has_secret:
        source["password"] = _password(asked)
    spark = dict(asked.document.get("spark") or {})
    # without the master for the old place: the service decides where Spark runs
    conf = {name: value for name, value in (spark.pop("conf", None) or {}).items() if name != "spark.master"}
    moved = {"target": target, "source": source, "state": f"{root}/state/{asked.name}"}
    moved["spark"] = spark | {"jars": "provided"} | ({"conf": conf} if conf else {})
    moved["submit"] = {asked.key: {**asked.settings, **ids, "bucket": f"{root}/jobs"}}
    return {**asked.document, **moved}


def _secret(asked: _Asked) -> str:
    """The name of the secret with the password."""
    return f"lakeingest/{asked.name}" if asked.scheme == "s3" else f"lakeingest-{asked.name}"


def _password(asked: _Asked) -> str:
    """The reference to the secret with the password."""
    if asked.scheme == "s3":
        return f"aws-secretsmanager://{_secret(asked)}#password"
    return f"gcp-secretmanager://projects/{asked.settings['project']}/secrets/{_secret(asked)}"


def _stack_steps(asked: _Asked, overrides: Sequence[str]) -> tuple[str, ...]:
    """The commands that make the stack on EMR Serverless, and then write the files of the schedule."""
    again = ["lakeingest", "submit", asked.key, "--init", "-c", str(asked.path)]
    again += [word for override in overrides for word in ("--set", override)]
    steps = [
        f"put your value in place of each {OPEN} in {asked.folder / 'stack.json'}",
        _cloudformation(asked, "stack", stack_name(asked.name)),
        f'put {{"password": "…"}} into the secret: {_put_secret(asked)}',
        f"{shlex.join(again)}  # writes the rest",
    ]
    # step 3, the password, is left out if the service's store of secrets has the password already
    return _numbered(steps[:2] + (steps[3:] if asked.has_secret else steps[2:]))


def _put_secret(asked: _Asked) -> str:
    """The command that puts the password into its secret."""
    words = ["aws", "secretsmanager", "put-secret-value", "--region", asked.settings["region"]]
    return shlex.join([*words, "--secret-id", _secret(asked), "--secret-string", "file://secret.json"])


def _cloudformation(asked: _Asked, file: str, name: str) -> str:
    """The command that makes or updates the stack `name` from the template and the parameters named `file`."""
    words = ["aws", "cloudformation", "deploy", "--region", asked.settings["region"], "--stack-name", name]
    words += ["--template-file", str(asked.folder / f"{file}.yml"), "--capabilities", "CAPABILITY_IAM"]
    return shlex.join([*words, "--parameter-overrides", f"file://{asked.folder / file}.json"])


def _schedule_steps(asked: _Asked) -> tuple[str, ...]:
    """The commands that schedule the jobs on EMR Serverless, once the stack is there."""
    return _numbered(
        [
            _first_job(asked),
            f"put your value in place of each {OPEN} in {asked.folder / 'schedule.json'}",
            _cloudformation(asked, "schedule", f"{stack_name(asked.name)}-schedule"),
        ]
    )


def _workflow_steps(asked: _Asked) -> tuple[str, ...]:
    """The commands that schedule the jobs on Dataproc."""
    project, region = asked.settings["project"], asked.settings["region"]
    place = f"https://cloudscheduler.googleapis.com/v1/projects/{project}/locations/{region}/jobs"
    secret = ["gcloud", "secrets", "create", _secret(asked), "--project", project, "--data-file", "password.txt"]
    imported = [
        "gcloud",
        "dataproc",
        "workflow-templates",
        "import",
        workflow_name(asked.name),
        "--project",
        project,
        "--region",
        region,
    ]
    data = f"@{asked.folder / 'schedule.json'}"
    # with `alpha`, because gcloud 528 has this command only there
    policy = ["gcloud", "alpha", "monitoring", "policies", "create", "--project", project, "--policy-from-file"]
    return _numbered(
        [
            *([] if asked.has_secret else [shlex.join(secret)]),
            _first_job(asked),
            f"put your value in place of each {OPEN} in the files of {asked.folder}",
            shlex.join([*imported, "--source", str(asked.folder / "workflow-template.yml")]),
            'curl --fail -H "Authorization: Bearer $(gcloud auth print-access-token)"'
            f' -H "Content-Type: application/json" -d {shlex.quote(data)} {shlex.quote(place)}',
            *(shlex.join([*policy, str(asked.folder / f"{file}.yml")]) for file in ("alert-jobs", "alert-schedule")),
        ]
    )


def _first_job(asked: _Asked) -> str:
    """The command that sends the first job, and waits for its end."""
    return shlex.join(["lakeingest", "submit", asked.key, "-c", str(asked.file), "--wait"])


def _numbered(steps: Sequence[str]) -> tuple[str, ...]:
    return ("next:", *(f"{number}. {step}" for number, step in enumerate(steps, 1)))


def _written(purpose: str, path: Path, text: str) -> DeploymentFile:
    """Write a file, in a new folder if need be, unless it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return DeploymentFile(purpose, path, is_new=False)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return DeploymentFile(purpose, path, is_new=True)
