"""Submit: prepare a job for a cluster. It is not sent yet, because a job cannot write its lake to S3 so far."""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeingest.cluster import archive
from lakeingest.cluster.emr_serverless import DRIVER, job_request
from lakeingest.config import FORMATS, Config, load_config
from lakeingest.config.catalogs import SECRETS
from lakeingest.errors import ConfigError, OperatorNeeded


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file, and the URI from which the job reads it."""

    path: Path
    uri: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it would be sent. `variables` are all that it needs or gets, each with its secret."""

    region: str
    uploads: tuple[Upload, ...]
    variables: Mapping[str, str | None]
    request: Mapping[str, Any]


class _Variables(Mapping[str, str]):
    """An environment that answers `${NAME}` for each variable without a default, and collects their names."""

    def __init__(self) -> None:
        self.noted: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.noted.add(name)
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.noted)

    def __len__(self) -> int:
        return len(self.noted)

    def get(self, key: str, default: Any = None) -> Any:
        """The default, which the job has too, or the variable."""
        return self[key] if default is None else default


def submit(path: Path, overrides: Sequence[str] = ()) -> Submission:
    """Build and check the job that runs a pipeline.yml on EMR Serverless; sends nothing, asks no service.

    The file is shipped as it is written, so that its variables are the job's and none has to be set here. Files are
    built into `build/submit` beside it. ConfigError for what a cluster cannot run, and for a password that is written
    out; OperatorNeeded where boto3, pip or room for the files is missing.
    """
    for key in (override.partition("=")[0] for override in overrides):
        if key in {"source", "source.password"}:
            raise ConfigError(f"--set {key}: a job has the file as it is written, with its password; change the file")
    variables = _Variables()
    config = load_config(path, overrides, variables, cluster=True)
    service = config.submit.emr_serverless
    if service is None:
        raise ConfigError(f"{path}: submit.emr-serverless is required for a job of EMR Serverless")
    _assert_submittable(config)
    folder, pins = path.parent.resolve() / "build" / "submit", archive.requirements()
    with _building(folder):
        job = archive.job(folder, path.read_bytes())
    archives = {"job": service.place(job.name), "dependencies": service.place(archive.dependencies_name(pins))}
    entry_point = archives["job"].replace(".tar.gz", ".py")
    changed = [word for override in overrides for word in ("--set", override)]
    request = job_request(
        config.name,
        service,
        entry_point,
        ["run", "-c", "job/pipeline.yml", *changed],
        archives,
        _jars(config),
        _settings(config),
        uuid.uuid4().hex,
    )
    with _building(folder):  # last, for it may take a minute
        dependencies = archive.dependencies(folder, pins)
    uploads = (
        Upload(archive.PACKAGE / "__main__.py", entry_point),
        Upload(job, archives["job"]),
        Upload(dependencies, archives["dependencies"]),
    )
    secrets = {name: service.secrets.get(name) for name in sorted(variables.noted | service.secrets.keys())}
    return Submission(service.region, uploads, secrets, request)


@contextmanager
def _building(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OperatorNeeded(f"a job's files cannot be built in {folder}: {reason}; make it writable") from error


def _assert_submittable(config: Config) -> None:
    password = config.source.password.get_secret_value()
    if password and not re.fullmatch(r"\$\{\w+\}", password):
        raise ConfigError("source.password is written out, or has a default; a job takes it from a variable, ${NAME}")
    for key in ("target", "state", "spark", "submit"):
        if found := re.search(r"\$\{\w+\}", config.model_dump_json(include={key})):
            raise ConfigError(f"{key} holds {found[0]}, which only the job knows; write out what a request is made of")
    if config.source.tls.ca is not None:
        raise ConfigError(f"source.tls.ca: {config.source.tls.ca} is on this machine, and no job has it")
    for jar in config.spark.jars if isinstance(config.spark.jars, tuple) else ():
        if "://" not in jar:
            raise ConfigError(f"spark.jars: {jar} is on this machine; a cluster needs a URI such as s3://bucket/a.jar")


def _jars(config: Config) -> dict[str, str]:
    if config.spark.jars == "provided":
        return {}
    if config.spark.jars == "auto":  # the others are for the embedded catalog
        return {"spark.jars.packages": FORMATS[config.target.format].jar}
    return {"spark.jars": ",".join(config.spark.jars)}


def _settings(config: Config) -> dict[str, str]:
    """The settings that every session of lakeingest has; settings of pipeline.yml win."""
    ours = {
        "spark.sql.session.timeZone": "UTC",
        # secrets are values of the driver's environment: Spark's pages must not print them
        "spark.redaction.regex": f"(?i){SECRETS}|{re.escape(DRIVER)}",
    }
    return ours | config.target.spark_properties() | config.spark.conf
