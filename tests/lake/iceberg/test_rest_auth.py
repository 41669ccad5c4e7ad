"""A REST catalog that lets nobody in without a token or a signature, whoever asks: PyIceberg or Spark."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.config.catalogs import SECRETS
from lakeingest.errors import StorageFailed
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.faults.proxy import Handler, proxied
from tests.lake.conftest import lake_named
from tests.lake.steps import Lake
from tests.servers.catalog_servers import add_catalog, rest_server

pytestmark = [pytest.mark.spark, pytest.mark.long("three ways into one catalog")]

CLIENT, SECRET, TOKEN, KEY, KEY_SECRET = "lake", "only for tests", "fixed", "AKIDLAKE", "signing secret"
_names = itertools.count(1)


class Guard(Handler):
    """Hands on what comes with a valid token or signature; `valid` is set to () when tokens expire."""

    valid: set[str]
    issued: Iterator[int]
    seen: set[str]

    def is_let_in(self, body: bytes) -> bool:
        """Issues tokens, too."""
        if self.path.endswith("/oauth/tokens"):
            self.issue(body)
            return False
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if given in self.valid if kind == "Bearer" else kind == "AWS4-HMAC-SHA256" and self.is_signed(given, body):
            self.seen.add(f"{kind} by {self.headers.get('User-Agent', '').partition('/')[0]}")
            return True
        error = {"message": "not authorized", "type": "NotAuthorizedException", "code": 401}
        self.answer(401, json.dumps({"error": error}).encode())
        return False

    def issue(self, body: bytes) -> None:
        """A token for the right client; or for another valid token, which is how Java's client refreshes its own."""
        asked = parse_qs(body.decode())
        right = asked.get("client_id") == [CLIENT] and asked.get("client_secret") == [SECRET]
        if not right and asked.get("subject_token", [""])[0] not in self.valid:
            self.answer(400, b'{"error": "invalid_client", "error_description": "unknown client"}')
            return
        token = f"token{next(self.issued)}"
        self.valid.add(token)
        answer = {"access_token": token, "token_type": "bearer", "expires_in": 3600}
        self.answer(200, json.dumps(answer).encode())

    def is_signed(self, given: str, body: bytes) -> bool:
        """Whether botocore signs the same request in the same way."""
        parts = dict(part.strip().split("=", 1) for part in given.split(","))
        key, _, region, service, _ = parts["Credential"].split("/")
        names = parts["SignedHeaders"].split(";")
        headers = {name: self.headers[name] for name in names if name != "host"}
        request = AWSRequest(self.command, f"http://{self.headers['Host']}{self.path}", headers, body)
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        signer = SigV4Auth(Credentials(key, KEY_SECRET), service, region)
        canonical = signer.canonical_request(request)
        text = signer.string_to_sign(request, canonical)
        age = datetime.now(UTC) - datetime.strptime(self.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        fresh = abs(age.total_seconds()) < 900
        return key == KEY and fresh and signer.signature(text, request) == parts["Signature"]


WAYS: Mapping[str, dict[str, str]] = {
    "credential": {"credential": f"{CLIENT}:{SECRET}", "scope": "PRINCIPAL_ROLE:ALL"},
    "token": {"token": TOKEN},
    "signature": {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "execute-api",
        "rest.signing-region": "eu-central-1",
        "rest.access-key-id": KEY,  # for Spark
        "rest.secret-access-key": KEY_SECRET,
        "client.access-key-id": KEY,  # for PyIceberg
        "client.secret-access-key": KEY_SECRET,
        "client.region": "eu-central-1",
    },
}
WRONG: Mapping[str, dict[str, str]] = {
    "credential": {"credential": f"{CLIENT}:wrong"},
    "token": {"token": "wrong"},
    "signature": {"client.secret-access-key": "wrong"},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[type[Guard], str, Path]]:
    """The proxy's class, with what it has seen, its URI, and a folder."""
    folder = tmp_path_factory.mktemp("guarded")
    bound = type("BoundGuard", (Guard,), {"valid": {TOKEN}, "issued": itertools.count(1), "seen": set()})
    with rest_server(folder) as upstream, proxied(upstream, bound) as (_, uri):
        yield bound, uri, folder


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How a client shows who it is."""
    return str(request.param)


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    guarded: tuple[type[Guard], str, Path],
    way: str,
    lake_config: Config,
    spark: SparkSession,
) -> Lake:
    """A table there, which Spark reads by the same way."""
    _, uri, folder = guarded
    catalog = {"type": "rest", "name": f"guarded{next(_names)}", "uri": uri, "properties": WAYS[way]}
    settings = Target.model_validate({"catalog": catalog, "warehouse": folder / "warehouse"})
    add_catalog(spark, settings)
    return lake_named(request, settings, lake_config, spark, way)


def test_a_table_is_copied_and_read_by_each_way_in(
    lake: Lake, way: str, guarded: tuple[type[Guard], str, Path]
) -> None:
    """Every request of PyIceberg and of Spark has the token or the signature."""
    guarded[0].seen.clear()
    lake.published((1, "a"))
    assert lake.seen() == [(1, "a")]
    kind = "AWS4-HMAC-SHA256" if way == "signature" else "Bearer"
    assert {one.partition(" by ")[0] for one in guarded[0].seen} == {kind}
    assert len(guarded[0].seen) >= 2, guarded[0].seen  # two clients


def test_a_token_that_expires_in_mid_run_is_refreshed(
    lake: Lake, way: str, guarded: tuple[type[Guard], str, Path]
) -> None:
    """PyIceberg asks for a new one and sends the request again; a commit takes effect once."""
    if way != "credential":
        pytest.skip("nothing expires")
    target, guard = lake.open(), guarded[0]
    staged = lake.copied((1, "a"))
    for pos in (20, 30, 40):
        guard.valid.intersection_update({TOKEN})
        staged = target.mark(staged, lake.leveled(staged, pos))
    guard.valid.intersection_update({TOKEN})
    lake.publish(staged, target)
    assert lake.loaded().published == staged.version


def test_a_wrong_secret_is_named(lake: Lake, way: str) -> None:
    """Exit code 3, and the secret is not in the message."""
    catalog = lake.settings.catalog.model_dump(exclude={"uri", "properties"})
    doc: dict[str, Any] = {**catalog, "uri": lake.settings.catalog.address}
    doc["properties"] = {**WAYS[way], **WRONG[way]}
    target = IcebergTarget(Target.model_validate({"catalog": doc, "warehouse": lake.settings.warehouse.uri}))
    with pytest.raises(StorageFailed, match="refuses") as refused:
        target.recover(lake.table)
    assert "wrong" not in str(refused.value)


def test_spark_lists_no_secret(lake: Lake, way: str) -> None:
    """In its page of settings, and for SET."""
    jvm: Any = lake.spark._jvm  # noqa: SLF001 - PySpark has no public way
    prefix = f"spark.sql.catalog.{lake.settings.catalog.name}."
    listed = {row["key"]: row["value"] for row in lake.spark.sql("SET").collect()}
    shown = [value for name, value in listed.items() if name.startswith(prefix)]
    assert shown
    for secret in (SECRET, KEY_SECRET, TOKEN):
        assert not any(secret in value for value in shown), way
    assert jvm is not None


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "credential",
        "jdbc.password",
        "rest.secret-access-key",
        "rest.session-token",
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "glue.secret-access-key",
        "adls.account-key",
        "adls.sas-token.lake",
        "adls.connection-string.lake",
        "adls.client-secret",
        "adls.auth.shared-key.account.key",
        "gcs.oauth2.token",
        "gcs.encryption-key",
        "gcs.decryption-key",
        "header.Authorization",
        "header.x-api-key",
    ],
)
def test_each_secret_of_catalogs_and_stores_is_redacted(name: str) -> None:
    """By the name of its setting."""
    assert re.search(f"(?i){SECRETS}", f"spark.sql.catalog.lake.{name}")
    assert not re.search(f"(?i){SECRETS}", "spark.sql.catalog.lake.oauth2-server-uri")
