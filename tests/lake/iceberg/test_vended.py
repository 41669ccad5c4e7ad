"""Keys of the store that a REST catalog gives for each table, and that expire: no other keys are known."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import S3SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lakeingest.config import Target
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import StorageFailed, UnsupportedTable
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.files import kept_files
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.faults import proxy, spoiling
from tests.lake.conftest import BOUNDARIES
from tests.lake.iceberg.test_shards import shards_on
from tests.lake.steps import PLAIN, Lake
from tests.servers.catalog_servers import object_store, rest_server

FOLDERS = ["warehouse/shop/orders-"]  # that may be listed


@dataclass
class Vendor:
    """Gives the store's keys with a new token each time; a token is valid for so many seconds."""

    store: LocalS3
    valid_seconds: float = 600.0
    issued: dict[str, float] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    folders: dict[str, str] = field(default_factory=dict)  # by token: the path of the folder that it is for
    is_for_one_table: bool = False

    def keys(self, location: str) -> dict[str, str]:
        """Properties of a FileIO, for a table with this location."""
        token = f"token{len(self.issued)}"
        self.issued[token] = time.monotonic()
        self.folders[token] = f"/{location.partition('://')[2]}/"
        keys = {"s3.access-key-id": self.store.access_key, "s3.secret-access-key": self.store.secret_key}
        return {**keys, "s3.session-token": token}

    def accepts(self, token: str, path: str) -> bool:
        """Whether the store lets a request for this path, with this token, in."""
        self.used.add(token)
        if self.is_for_one_table and not path.startswith(self.folders.get(token, "//")):
            return False
        return time.monotonic() - self.issued.get(token, -1e9) < self.valid_seconds


class GivingKeys(proxy.Handler):
    """A catalog that answers each question for a table with keys, in one of the two ways of Iceberg's specification."""

    vendor: Vendor
    way: str

    def answer(self, status: int, body: bytes) -> None:
        """With keys, if it has a table."""
        if status == 200 and "/tables" in self.path:
            doc = json.loads(body)
            if "metadata" in doc:
                keys = self.vendor.keys(doc["metadata"]["location"])
                doc |= {"config": keys} if self.way == "config" else {}
                doc |= {"storage-credentials": [{"prefix": "s3://", "config": keys}]} if self.way != "config" else {}
                body = json.dumps(doc).encode()
        super().answer(status, body)


class AskingForToken(spoiling.Proxy):
    """A store that refuses whoever has no valid token. The real one takes none, so the request is signed without it."""

    dropped = frozenset({"connection", "expect"})  # the name of the host is signed
    vendor: Vendor

    def meets(self, _: str, path: str, headers: dict[str, str]) -> str:
        """Refused, or no fault. Only folders of the table are listed."""
        url, token = urlsplit(path), lower(headers).get("x-amz-security-token", "")
        [folder] = parse_qs(url.query).get("prefix", [""])
        place = f"{url.path.rstrip('/')}/{folder}" if folder else url.path
        is_listed = not folder or self.vendor.is_for_one_table or folder.startswith(tuple(FOLDERS))
        return "" if self.vendor.accepts(token, place) and is_listed else "403 before it"

    def excuse(self, _: str) -> tuple[dict[str, str], bytes]:
        """As S3 says it."""
        body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
        return {"Content-Type": "application/xml"}, body

    def hand_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> spoiling.Answer:
        """With the signature of the same request without the token."""
        sent = lower(headers)
        del sent["x-amz-security-token"]
        algorithm, _, given = sent["authorization"].partition(" ")
        parts = dict(part.strip().split("=", 1) for part in given.split(","))
        names = [name for name in parts["SignedHeaders"].split(";") if name in sent]
        region = parts["Credential"].split("/")[2]
        signer = S3SigV4Auth(Credentials(self.vendor.store.access_key, self.vendor.store.secret_key), "s3", region)
        signed = {name: sent[name] for name in names if name != "host"}
        request = AWSRequest(method, f"http://{sent['host']}{path}", signed)
        request.context["timestamp"] = sent["x-amz-date"]
        signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        fields = f"Credential={parts['Credential']}, SignedHeaders={';'.join(names)}, Signature={signature}"
        return super().hand_on(method, path, {**sent, "authorization": f"{algorithm} {fields}"}, body)


def lower(headers: dict[str, str]) -> dict[str, str]:
    """The headers with names in small letters."""
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture(params=["config", "storage-credentials"])
def vended(
    request: pytest.FixtureRequest, tmp_path: Local, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Lake, Vendor]]:
    """A table on such a catalog, and who gives the keys."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with object_store(tmp_path) as store, rest_server(tmp_path, store=store) as upstream:
        vendor = Vendor(store)
        catalog = type("Giving", (GivingKeys,), {"vendor": vendor, "way": request.param})
        guard = type("Asking", (AskingForToken,), {"vendor": vendor})
        with proxy.proxied(upstream, catalog) as (_, uri), spoiling.proxied(store.endpoint, guard) as (_, endpoint):
            doc: dict[str, Any] = {
                "catalog": {"type": "rest", "uri": uri, "name": "vended"},
                "warehouse": f"s3://{store.bucket}/warehouse",
                "storage": {**store.storage, "endpoint": endpoint},
                "history": {"readers": "0s"},
            }
            settings, schema = Target.model_validate(doc), TableSchema(TableId("shop", "orders"), PLAIN, ("id",))
            spark = cast("SparkSession", None)  # no step needs one
            yield (
                Lake(
                    settings, lambda: IcebergTarget(settings, waiting=tmp_path / "waiting"), spark, schema, BOUNDARIES
                ),
                vendor,
            )


@pytest.mark.long("waits until keys expire")
def test_a_table_is_copied_and_kept_with_keys_of_its_catalog(vended: tuple[Lake, Vendor]) -> None:
    """By the driver and by what executors get; each step that takes long is begun with new ones."""
    lake, vendor = vended
    vendor.valid_seconds = 5.0
    target = lake.open()
    staged = lake.copied((1, "a"), (2, "b"))
    for pos, row in enumerate([(2, "c", False), (1, "a", True)], 30):
        time.sleep(5.5)
        staged = lake.merge(staged, row, pos=pos, target=target)
    time.sleep(5.5)
    staged = lake.publish(staged, target)
    assert target.count(lake.table, staged.version) == 1
    target.writer(lake.table).write(lake.arrow([(3, "left by a killed task")]))
    time.sleep(1.5)  # the store tells whole seconds
    assert target.remove_leftovers(lake.table, timedelta(0))[0] == 1
    assert "" not in vendor.used


@pytest.mark.long("takes seconds")
def test_keys_that_have_expired_are_named(vended: tuple[Lake, Vendor]) -> None:
    """A task that goes on for longer than they are valid fails, with the store's reason."""
    lake, vendor = vended
    staged = lake.created()
    assert staged
    writer = lake.open().writer(lake.table)
    vendor.valid_seconds = 0.0
    with pytest.raises(StorageFailed, match="expired"), lake.open().storage_errors():
        writer.write(lake.arrow([(1, "a")]))


@pytest.mark.long("takes seconds")
def test_keys_for_one_folder_are_refused_by_name_with_shards(vended: tuple[Lake, Vendor], tmp_path: Path) -> None:
    """Before a row is copied: the keys of the table that readers query do not open the folders of its shards."""
    lake, vendor = vended
    vendor.is_for_one_table = True
    shard_of = shards_on(lake.settings.model_copy(update={"table": "lake.all"}), tmp_path)
    with pytest.raises(UnsupportedTable, match=r"the catalog lends keys for the folder of each table"):
        shard_of("a.t").created()
    vendor.is_for_one_table = False
    FOLDERS.append("warehouse/lake")
    try:
        other = shard_of("b.t")
        other.published((1, "b"))
        shard_of("c.t").published((1, "c"))
        vendor.is_for_one_table = True
        with pytest.raises(UnsupportedTable, match=r"a\.c: it cannot be a shard of lake\.all: the catalog lends keys"):
            shard_of("a.c").created()
        merged = other.merge(other.loaded(), (1, "new", False), pos=30)
        kept_files._lists.forget()  # noqa: SLF001 - as in a new process
        with pytest.raises(UnsupportedTable, match="the catalog lends keys"):  # they opened more at its first publish
            other.publish(merged)
    finally:
        FOLDERS.remove("warehouse/lake")
