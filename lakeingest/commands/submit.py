"""Submit: builds the files and the request of a job that runs a pipeline.yml on a service. Nothing is sent here."""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakeingest.cluster import archive
from lakeingest.cluster.dataproc import DataprocJobs
from lakeingest.cluster.dataproc_serverless import DataprocBatches
from lakeingest.cluster.emr import EmrSteps
from lakeingest.cluster.emr_serverless import EmrServerlessJobs
from lakeingest.cluster.service import Job, Service
from lakeingest.config import FORMATS, Config, load_config, parse_config
from lakeingest.config.catalogs import is_secret
from lakeingest.config.secrets import is_reference
from lakeingest.errors import DAMAGED, ConfigError, OperatorNeeded

_KINDS: tuple[Any, ...] = (EmrServerlessJobs, EmrSteps, DataprocJobs, DataprocBatches)
SERVICES: Mapping[str, Callable[[Any], Service]] = {kind.key: kind for kind in _KINDS}
_VARIABLE = re.compile(r"\$\{\w+\}")
# settings whose names look like those of secrets (`is_secret`), but whose values are none
_HOLDS_NO_SECRET = re.compile(r"(?i)provider|\.(enabled|renewal|ttl|expiration|path|names?)$|file$|redaction|keytab")


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file, and the URI from which the job reads it. Different contents have different URIs."""

    path: Path
    uri: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that can be sent.

    `variables` maps each variable of the job to the secret that has its value, or to None if no secret is configured
    for the variable. `pending` is a file that is written before the request is sent, and removed when the answer has
    come. If this file is left over, an earlier request may have been sent, and its answer lost.
    """

    service: Service
    config: Config
    uploads: tuple[Upload, ...]
    variables: Mapping[str, str | None]
    job: Job
    request: Mapping[str, Any]
    pending: Path


class _Variables(Mapping[str, str]):
    """An environment in which each variable NAME without a default is `${NAME}`. `names` collects these variables."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def get(self, key: str, default: Any = None) -> Any:
        """The default, if the file has one, because the job will use the same default; otherwise `${NAME}`.

        Only a variable without a default is added to `names`.
        """
        return self[key] if default is None else default


def submit(path: Path, key: str, overrides: Sequence[str] = ()) -> Submission:
    """Build and check the job that runs a pipeline.yml on the service `key`. Nothing is sent, and no service is asked.

    The job gets the file as it is written, and resolves the file's variables and references to secrets. So their values
    need not be known here. The job's files are built in the folder `build/submit` beside pipeline.yml.

    Raises ConfigError if a cluster cannot run the pipeline, or if the file itself has a secret. Raises OperatorNeeded
    if the service's client or pip is missing, or if the job's files cannot be written.
    """
    folder = path.parent.resolve() / "build" / "submit"
    prepared = _prepare(path, key, overrides, folder)
    pending = folder / f"pending-{key}.json"
    job = replace(prepared.job, token=_request_token(pending, prepared.job))
    request = prepared.service.request(job)
    # The archives of the dependencies come last, because they may take minutes, and the steps before can fail.
    with _build_errors(folder):
        dependencies = archive.dependencies(folder, prepared.pins)
    # the files and their URIs have the same order: the program, the job's archive, the archives of the dependencies
    files = (archive.PACKAGE / "__main__.py", prepared.job_file, *dependencies)
    uploads = tuple(map(Upload, files, (job.entry_point, *job.archives.values())))
    return Submission(prepared.service, prepared.config, uploads, prepared.variables, job, request, pending)


def request_of(path: Path, key: str, token: str) -> Mapping[str, Any]:
    """The request that `submit` would send, with this token. Of the job's files, only those that are small are built.

    The errors are those of `submit`.
    """
    prepared = _prepare(path, key, (), path.parent.resolve() / "build" / "submit")
    return prepared.service.request(replace(prepared.job, token=token))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A job whose archives of dependencies (`pins`) are not built yet. `job` has no token yet.

    `variables` is as in Submission.
    """

    service: Service
    config: Config
    variables: Mapping[str, str | None]
    pins: list[str]
    job_file: Path
    job: Job


def _prepare(path: Path, key: str, overrides: Sequence[str], folder: Path) -> _Prepared:
    """Check a pipeline.yml and its service. Build in `folder` the archive that has lakeingest and the pipeline.yml."""
    for override in overrides:
        overridden = override.partition("=")[0]
        if overridden in {"source", "source.password"}:
            raise ConfigError(
                f"--set {overridden}: a job has the file as it is written, with its password; change the file"
            )
    # Step 1: check the file and its service
    variables = _Variables()
    config = load_config(path, overrides, variables, cluster=True)
    service = _checked_service(config, key, path)
    _assert_submittable(config)
    # Step 2: build the job's archive, and the job
    pins = archive.requirements(*service.extra, *_packages(config))
    with _build_errors(folder):
        job_file = archive.job(folder, path.read_bytes(), _tls_files(config))
    uris = {"job": f"{service.bucket}/{job_file.name}"}
    for number, name in enumerate(archive.dependencies_names(pins), 1):
        uris[f"dependencies{number}"] = f"{service.bucket}/{name}"
    # in the job's archive, the files of source.tls are beside pipeline.yml, under other names
    job_overrides = [*overrides, *(f"source.tls.{name}={_name_in_job(name)}" for name in config.source.tls.files)]
    job = Job(
        config.name,
        token="",
        entry_point=uris["job"].replace(".tar.gz", ".py"),  # the program is stored beside the job's archive
        arguments=(
            "run",
            "-c",
            "job/pipeline.yml",
            *(word for override in job_overrides for word in ("--set", override)),
        ),
        archives=uris,
        launch=_jar_settings(config, service),
        settings=config.spark.conf,
    )
    secret_of_variable = {name: service.secrets.get(name) for name in sorted(variables.names | service.secrets.keys())}
    return _Prepared(service, config, secret_of_variable, pins, job_file, job)


def assert_job(document: Mapping[str, Any], folder: Path) -> None:
    """Raise ConfigError if a job cannot have this pipeline.yml: a cluster cannot run it, or it holds a secret."""
    _assert_submittable(parse_config(document, folder, _Variables(), cluster=True))


def load_service(path: Path, key: str, overrides: Sequence[str] = ()) -> Service:
    """The service `key` of a pipeline.yml, for requests about jobs that are already sent."""
    return _checked_service(load_config(path, overrides, _Variables(), cluster=True), key, path)


def _checked_service(config: Config, key: str, path: Path) -> Service:
    """The service `key` of pipeline.yml. Raises ConfigError if the file does not configure it.

    Raises OperatorNeeded if the service's client is not installed.
    """
    configured = {name: getattr(config.submit, name.replace("-", "_")) for name in SERVICES}
    if configured[key] is None:
        raise ConfigError(f"{path}: submit.{key} is required for a job of this service")
    service = SERVICES[key](configured[key])
    service.require_client()
    return service


def _request_token(pending: Path, job: Job) -> str:
    """The token of the request, by which a service starts a job only once.

    Normally the token is new. If the file `pending` is left over from a request for the same job, the answer to that
    request was lost, and the job may have been started. Then the token of that request is used once more.
    """
    try:
        lost_request = json.loads(pending.read_text())
        if lost_request["job"] == job_digest(job):
            return str(lost_request["token"])
    except (OSError, *DAMAGED):
        pass  # no file is left over, or it is damaged
    return uuid.uuid4().hex


def job_digest(job: Job) -> str:
    """A hash of everything in the job except its token. Jobs that do the same have the same hash."""
    return hashlib.sha256(repr(replace(job, token="")).encode()).hexdigest()


@contextmanager
def _build_errors(folder: Path) -> Iterator[None]:
    """Turn each OSError of the block, which builds files in this folder, into OperatorNeeded."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OperatorNeeded(f"a job's files cannot be built in {folder}: {reason}; make it writable") from error


def _assert_submittable(config: Config) -> None:
    """Raise ConfigError if pipeline.yml has something that must not be sent, or that is of no use on a cluster.

    That is: a secret that is written out, a variable in a key that the request needs, a setting of Spark that holds a
    secret, or a jar of this machine.
    """
    for key, secret in _secret_values(config):
        if secret and not _VARIABLE.fullmatch(secret) and not is_reference(secret):
            raise ConfigError(
                f"{key} is written out, or has a default; a job takes it from a variable, ${{NAME}}, or by a reference"
                " such as aws-secretsmanager://NAME#KEY"
            )
    for key in ("target", "state", "spark", "submit"):
        if variable := _VARIABLE.search(config.model_dump_json(include={key})):
            raise ConfigError(
                f"{key} holds {variable[0]}, which only the job knows; write the value itself: the request needs it"
            )
    for setting, value in config.spark.conf.items():
        if is_reference(value) or (is_secret(setting) and not _HOLDS_NO_SECRET.search(setting)):
            raise ConfigError(
                f"spark.conf: {setting}: Spark's settings are no secrets, and may not hold or refer to one: a request"
                " and the service's pages show them; give the role of the job the right instead"
            )
    jars = config.spark.jars if isinstance(config.spark.jars, tuple) else ()  # else a word, which names no jar
    for jar in jars:
        if "://" not in jar:
            raise ConfigError(f"spark.jars: {jar} is on this machine; a cluster needs a URI such as s3://bucket/a.jar")


def _name_in_job(key: str) -> str:
    """The name that a file of source.tls has in the job. `key` is the key that names the file in pipeline.yml."""
    return f"source.tls.{key}.pem"


def _tls_files(config: Config) -> dict[str, bytes]:
    """The contents of the files of source.tls, by the names of the files in the job.

    Raises ConfigError if a file cannot be read.
    """
    files = {}
    for key, path in config.source.tls.files.items():
        try:
            files[_name_in_job(key)] = (config.source.tls.text(key) or "").encode()
        except OSError as error:
            raise ConfigError(f"source.tls.{key}: {path} cannot be read: {error.strerror or error}") from error
    return files


def _secret_values(config: Config) -> Iterator[tuple[str, str]]:
    """The values of pipeline.yml that are secrets, or that may be secrets. Yields the key and the value of each."""
    yield "source.password", config.source.password.get_secret_value()
    yield "tables.hash_key", config.tables.secret.decode()
    yield "metrics.push_password", config.metrics.push_password.get_secret_value()
    webhook = "" if config.notify.webhook is None else config.notify.webhook.get_secret_value()
    yield "notify.webhook", "" if _VARIABLE.search(webhook) else webhook  # a variable may be a part of the URL
    if config.notify.openlineage is not None:
        yield "notify.openlineage.api_key", config.notify.openlineage.api_key.get_secret_value()
    catalog, storage = config.target.catalog, config.target.storage
    if catalog.password:
        yield "target.catalog.uri", catalog.password
    for key, properties in (("catalog", catalog.properties), ("storage", storage.properties)):
        for name, value in properties.items():
            if is_secret(name):
                yield f"target.{key}.properties.{name}", value.get_secret_value()


def _packages(config: Config) -> tuple[str, ...]:
    """The Python packages that a job needs for its catalog and its metrics, besides the packages of lakeingest[aws]."""
    packages = {"sql": ("psycopg[binary]",), "hive": ("thrift",)}.get(config.target.catalog.type or "", ())
    return (*packages, "lakeingest[otel]") if config.metrics.opentelemetry else packages


def _jar_settings(config: Config, service: Service) -> Mapping[str, str]:
    """The settings of Spark that name the jars of a job."""
    if config.spark.jars == "provided":
        return service.provided.get(config.target.format) or {}
    if config.spark.jars == "auto":
        return {"spark.jars.packages": ",".join(FORMATS[config.target.format].jars(config.target))}
    return {"spark.jars": ",".join(config.spark.jars)}
