"""Submit: the files and the request of a job that runs a pipeline.yml on a service, checked before anything is sent."""

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
from lakeingest.config import FORMATS, Config, load_config
from lakeingest.config.catalogs import is_secret
from lakeingest.config.secrets import is_reference
from lakeingest.errors import DAMAGED, ConfigError, OperatorNeeded

_KINDS: tuple[Any, ...] = (EmrServerlessJobs, EmrSteps, DataprocJobs, DataprocBatches)
SERVICES: Mapping[str, Callable[[Any], Service]] = {kind.key: kind for kind in _KINDS}
_VARIABLE = re.compile(r"\$\{\w+\}")
_IS_NO_SECRET = re.compile(r"(?i)provider|\.(enabled|renewal|ttl|expiration|path|names?)$|file$|redaction|keytab")


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file, and the URI from which the job reads it. Different contents have different URIs."""

    path: Path
    uri: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it is sent. `variables` are all that it needs or gets, each with its secret, or None.

    While the file `pending` exists, a request may have been sent whose answer is not known.
    """

    service: Service
    config: Config
    uploads: tuple[Upload, ...]
    variables: Mapping[str, str | None]
    job: Job
    request: Mapping[str, Any]
    pending: Path


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
        """The default if there is one, because the job has it, too; otherwise the variable's reference."""
        return self[key] if default is None else default


def submit(path: Path, key: str, overrides: Sequence[str] = ()) -> Submission:
    """Build and check the job that runs a pipeline.yml on the service `key`; sends nothing, asks no service.

    The file is shipped as it is written: the job resolves its variables and references, so none has to be known here.
    The job's files are built into `build/submit` beside it.

    Raises ConfigError if a cluster cannot run the pipeline, or if the file holds a secret itself; OperatorNeeded if the
    service's client or pip is missing, or if the job's files cannot be written.
    """
    for key_set in (override.partition("=")[0] for override in overrides):
        if key_set in {"source", "source.password"}:
            raise ConfigError(
                f"--set {key_set}: a job has the file as it is written, with its password; change the file"
            )
    variables = _Variables()
    config = load_config(path, overrides, variables, cluster=True)
    service = _service(config, key, path)
    _assert_submittable(config)
    folder = path.parent.resolve() / "build" / "submit"
    pins = archive.requirements(*service.extra, *_of_catalog(config))
    with _building(folder):
        job_file = archive.job(folder, path.read_bytes(), _proofs(config))
    places = {"job": f"{service.bucket}/{job_file.name}"}
    for number, name in enumerate(archive.dependencies_names(pins), 1):
        places[f"dependencies{number}"] = f"{service.bucket}/{name}"
    # in the archive, the files of source.tls are beside pipeline.yml
    job_overrides = [*overrides, *(f"source.tls.{key}={_shipped(key)}" for key in config.source.tls.files)]
    job = Job(
        config.name,
        "",
        places["job"].replace(".tar.gz", ".py"),
        ("run", "-c", "job/pipeline.yml", *(word for override in job_overrides for word in ("--set", override))),
        places,
        _jars(config, service),
        config.spark.conf,
    )
    pending = folder / f"pending-{key}.json"
    job = replace(job, token=_token(pending, job))
    request = service.request(job)
    with _building(folder):  # after all checks, because it may take minutes
        dependencies = archive.dependencies(folder, pins)
    files = (archive.PACKAGE / "__main__.py", job_file, *dependencies)
    uploads = tuple(map(Upload, files, (job.entry_point, *places.values())))
    secrets = {name: service.secrets.get(name) for name in sorted(variables.noted | service.secrets.keys())}
    return Submission(service, config, uploads, secrets, job, request, pending)


def configured(path: Path, key: str, overrides: Sequence[str] = ()) -> Service:
    """The service of a pipeline.yml, for questions about jobs that are already sent."""
    return _service(load_config(path, overrides, _Variables(), cluster=True), key, path)


def _service(config: Config, key: str, path: Path) -> Service:
    """The service `key` of pipeline.yml. Raises ConfigError if the file does not have it."""
    values = {name: getattr(config.submit, name.replace("-", "_")) for name in SERVICES}
    if values[key] is None:
        raise ConfigError(f"{path}: submit.{key} is required for a job of this service")
    service = SERVICES[key](values[key])
    service.require_client()
    return service


def _token(pending: Path, job: Job) -> str:
    """A new token; or the token of an earlier request for the same job, if that one may have been sent unanswered."""
    try:
        earlier = json.loads(pending.read_text())
        if earlier["job"] == job_digest(job):
            return str(earlier["token"])
    except (OSError, *DAMAGED):
        pass
    return uuid.uuid4().hex


def job_digest(job: Job) -> str:
    """A hash of the job without its token: jobs that do the same have the same hash."""
    return hashlib.sha256(repr(replace(job, token="")).encode()).hexdigest()


@contextmanager
def _building(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OperatorNeeded(f"a job's files cannot be built in {folder}: {reason}; make it writable") from error


def _assert_submittable(config: Config) -> None:
    """Raise ConfigError for a plain secret, a variable in a key that the request needs, or a jar of this machine."""
    for key, secret in _secrets(config):
        if secret and not _VARIABLE.fullmatch(secret) and not is_reference(secret):
            raise ConfigError(
                f"{key} is written out, or has a default; a job takes it from a variable, ${{NAME}}, or by a reference"
                " such as aws-secretsmanager://NAME#KEY"
            )
    for key in ("target", "state", "spark", "submit"):
        if variable := _VARIABLE.search(config.model_dump_json(include={key})):
            raise ConfigError(
                f"{key} holds {variable[0]}, which only the job knows; write out what a request is made of"
            )
    for setting, value in config.spark.conf.items():
        if is_reference(value) or (is_secret(setting) and not _IS_NO_SECRET.search(setting)):
            raise ConfigError(
                f"spark.conf: {setting}: Spark's settings are no secrets, and may not hold or refer to one: a request"
                " and the service's pages show them; give the role of the job the right instead"
            )
    for jar in config.spark.jars if isinstance(config.spark.jars, tuple) else ():
        if "://" not in jar:
            raise ConfigError(f"spark.jars: {jar} is on this machine; a cluster needs a URI such as s3://bucket/a.jar")


def _shipped(key: str) -> str:
    """The name that a file of `source.tls` has in a job."""
    return f"source.tls.{key}.pem"


def _proofs(config: Config) -> dict[str, bytes]:
    """The files that prove the source, by their names in the job. Raises ConfigError if one cannot be read."""
    files = {}
    for key, path in config.source.tls.files.items():
        try:
            files[_shipped(key)] = (config.source.tls.text(key) or "").encode()
        except OSError as error:
            raise ConfigError(f"source.tls.{key}: {path} cannot be read: {error.strerror or error}") from error
    return files


def _secrets(config: Config) -> Iterator[tuple[str, str]]:
    """The secrets of pipeline.yml, each with its key."""
    yield "source.password", config.source.password.get_secret_value()
    catalog, storage = config.target.catalog, config.target.storage
    if catalog.password:
        yield "target.catalog.uri", catalog.password
    for key, properties in (("catalog", catalog.properties), ("storage", storage.properties)):
        for name, value in properties.items():
            if is_secret(name):
                yield f"target.{key}.properties.{name}", value.get_secret_value()


def _of_catalog(config: Config) -> tuple[str, ...]:
    """The packages that a job needs for its catalog, besides lakeingest[aws]."""
    packages = {"sql": ("psycopg[binary]",), "hive": ("thrift",)}
    return packages.get(config.target.catalog.type or "", ())


def _jars(config: Config, service: Service) -> Mapping[str, str]:
    """The settings of Spark that give a job its jars."""
    if config.spark.jars == "provided":
        return service.provided.get(config.target.format) or {}
    if config.spark.jars == "auto":
        return {"spark.jars.packages": ",".join(FORMATS[config.target.format].jars(config.target))}
    return {"spark.jars": ",".join(config.spark.jars)}
