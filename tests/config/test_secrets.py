"""Secrets by reference: from a file, from Secrets Manager as moto has it, and from what answers as Google's does."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from moto import mock_aws

from lakeingest.config import parse_config, secrets
from lakeingest.errors import ConfigError, LakeIngestError, OperatorNeeded, Retryable
from tests.servers.answering import answering

LEAST = {"name": "shop", "source": {"host": "db", "user": "lake"}, "tables": {"include": ["shop.*"]}}
REGION = "eu-central-1"
VALUE = "hush-hush"


def password(reference: str, **more: Any) -> str:
    """The password of a pipeline.yml that refers to it."""
    doc = {**LEAST, "source": {"host": "db", "user": "lake", "password": reference}, **more}
    return parse_config(doc, Path("/"), {}).source.password.get_secret_value()


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Secrets Manager with a text and a document."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        client = boto3.client("secretsmanager")
        client.create_secret(Name="lake/text", SecretString=VALUE)
        client.create_secret(Name="lake/mysql", SecretString=json.dumps({"password": VALUE, "port": 3306}))
        client.create_secret(Name="lake/bytes", SecretBinary=b"\0")
        yield client


def test_a_file_is_a_secret(tmp_path: Path) -> None:
    """Its text without the line end; with a key, one value of the document in it."""
    plain, document = tmp_path / "plain", tmp_path / "document"
    plain.write_text(f"{VALUE}\n")
    document.write_text(json.dumps({"password": VALUE}))
    assert password(f"file://{plain}") == VALUE
    assert password(f"file://{document}#password") == VALUE


def test_secrets_manager_gives_a_text_or_a_value_of_a_document(amazon: Any) -> None:
    """By the name or by the ARN, which says the region."""
    assert password("aws-secretsmanager://lake/text") == VALUE
    assert password("aws-secretsmanager://lake/mysql#password") == VALUE
    assert password("aws-secretsmanager://lake/mysql#port") == "3306"
    arn = boto3.client("secretsmanager", "us-west-2").create_secret(Name="other", SecretString="x")["ARN"]
    assert password(f"aws-secretsmanager://{arn}") == "x"


@pytest.mark.long("takes seconds")
def test_every_secret_of_a_pipeline_can_be_a_reference(amazon: Any, tmp_path: Path) -> None:
    """The catalog's address and properties, and those of the store; what is no secret is left as it is written."""
    amazon.create_secret(Name="lake/catalog", SecretString=json.dumps({"uri": "https://lake.example.com", "t": VALUE}))
    target = {
        "catalog": {
            "type": "rest",
            "uri": "aws-secretsmanager://lake/catalog#uri",
            "properties": {"token": "aws-secretsmanager://lake/catalog#t", "prefix": "a"},
        },
        "storage": {"properties": {"s3.secret-access-key": "aws-secretsmanager://lake/text"}},
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    found = parse_config({**LEAST, "target": target}, Path("/"), {}).target
    assert found.catalog.address == "https://lake.example.com"
    assert found.catalog.plain_properties == {"token": VALUE, "prefix": "a"}
    assert found.storage.properties["s3.secret-access-key"].get_secret_value() == VALUE
    assert found.warehouse.path == tmp_path / "warehouse"


def test_a_secret_is_asked_for_once(amazon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys take a value of it; the next pipeline asks again, so that a new value is seen."""
    asked: list[str] = []
    fetch = secrets._fetch_from_amazon  # noqa: SLF001

    def noting(name: str) -> str:
        asked.append(name)
        return fetch(name)

    monkeypatch.setattr(secrets, "_fetch_from_amazon", noting)
    storage = {"properties": dict.fromkeys(("a", "b"), "aws-secretsmanager://lake/mysql#password")}
    for _ in range(2):
        assert password("aws-secretsmanager://lake/mysql#password", target={"storage": storage}) == VALUE
    assert asked == ["lake/mysql"] * 2


def test_a_job_is_prepared_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pipeline is only submitted nothing is fetched: the reference stays."""
    doc = {
        **LEAST,
        "source": {"host": "db", "user": "lake", "password": "aws-secretsmanager://lake/mysql"},
        "target": {
            "warehouse": "s3://lake/warehouse",
            "catalog": {"type": "rest", "uri": "aws-secretsmanager://lake/catalog"},
        },
        "state": "s3://lake/state",
    }
    config = parse_config(doc, Path("/"), {}, cluster=True)
    assert config.source.password.get_secret_value() == "aws-secretsmanager://lake/mysql"


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        ("aws-secretsmanager://lake/none", OperatorNeeded, "lake/none: .*ResourceNotFound"),
        ("aws-secretsmanager://lake/mysql#none", ConfigError, "no JSON document with none"),
        ("aws-secretsmanager://lake/text#any", ConfigError, "no JSON document with any"),
        ("aws-secretsmanager://lake/bytes", ConfigError, "has bytes"),
        ("aws-secretsmanager://", ConfigError, "no reference of the form"),
        ("gcp-secretmanager://mysql", ConfigError, "needs the form projects/P"),
        ("file://relative", ConfigError, "absolute path"),
        ("file:///nowhere/at/all", OperatorNeeded, "/nowhere/at/all cannot be read: No such file"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(
    amazon: Any, reference: str, error: type[LakeIngestError], message: str
) -> None:
    """With its key of pipeline.yml, in one line that has no secret."""
    with pytest.raises(error, match=message) as refused:
        password(reference)
    assert str(refused.value).startswith("source.password: ")
    assert VALUE not in refused.value.line


def test_secrets_manager_away_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command, later, may be given the secret; without credentials somebody has to act."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(OperatorNeeded, match="Unable to locate credentials"):
        password("aws-secretsmanager://lake/mysql")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(Retryable, match="lake/mysql: no answer"):
        password("aws-secretsmanager://lake/mysql")


@contextmanager
def google(monkeypatch: pytest.MonkeyPatch, folder: Path, status: int = 200) -> Iterator[list[str]]:
    """What answers as Google's token endpoint and Secret Manager do, for a service account; the paths asked for."""
    asked: list[str] = []

    class Google(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(200, {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"})

        def do_GET(self) -> None:
            asked.append(f"{self.headers['Authorization']} {self.path}")
            self._answer(status, {"payload": {"data": base64.b64encode(VALUE.encode()).decode()}})

        def _answer(self, code: int, document: dict[str, Any]) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with answering(HTTPServer(("127.0.0.1", 0), Google)) as server:
        place = f"http://127.0.0.1:{server.server_port}"
        account = {"type": "service_account", "client_email": "a@b", "private_key": key.decode()}
        (folder / "account.json").write_text(json.dumps({**account, "token_uri": f"{place}/token", "project_id": "p"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "account.json"))
        monkeypatch.setattr(secrets, "_GOOGLE", place)
        yield asked


def test_secret_manager_of_google_is_asked_for_the_newest_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or for the one that is named; with the credentials of the machine."""
    with google(monkeypatch, tmp_path) as asked:
        assert password("gcp-secretmanager://projects/p/secrets/mysql") == VALUE
        assert password("gcp-secretmanager://projects/p/secrets/mysql/versions/3") == VALUE
    assert asked == [
        "Bearer token /v1/projects/p/secrets/mysql/versions/latest:access",
        "Bearer token /v1/projects/p/secrets/mysql/versions/3:access",
    ]


@pytest.mark.parametrize(("status", "error"), [(404, OperatorNeeded), (403, OperatorNeeded), (503, Retryable)])
def test_secret_manager_of_google_may_refuse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, error: type[LakeIngestError]
) -> None:
    """Who acts then depends on the answer."""
    with google(monkeypatch, tmp_path, status) as _, pytest.raises(error, match=f"secret projects/p.*: {status}"):
        password("gcp-secretmanager://projects/p/secrets/mysql")
