"""A catalog behind a proxy that loses and falsifies answers: every step takes effect once, or is refused."""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import CatalogAway
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.catalogs import rest
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.faults.proxied import SILENCE_SECONDS
from tests.faults.proxy import Proxy, proxied
from tests.faults.spoiling import Proxy as Spoiler
from tests.faults.spoiling import proxied as spoiled_by
from tests.faults.tcp_proxy import FAULTS, tcp_proxied
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake
from tests.servers.catalog_servers import TARGETS, add_catalog, rest_server

pytestmark = [pytest.mark.spark]

_numbers = itertools.count(1)
AFTER = [f"{code} after it" for code in (401, 500, 502, 503, 504)]
BEFORE = [f"{code} before it" for code in (500, 502, 503, 504)]
QUICK = ["closed after it", "twice"]
LONG = ["closed before it", "late", "silence after it", *AFTER, *BEFORE]


# The proxy, a config whose catalog is behind it, and the target as the session reads it, past the proxy.
Spoiled = tuple[Proxy, Config, Target]


@pytest.fixture(scope="module")
def on_rest(lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """A REST catalog behind a proxy."""
    folder = tmp_path_factory.mktemp("spoiled")
    with rest_server(folder) as straight, proxied(straight) as (proxy, uri):
        catalogs = [{"type": "rest", "name": "spoiled", "uri": one} for one in (uri, straight)]
        found = [Target.model_validate({"catalog": one, "warehouse": folder / "warehouse"}) for one in catalogs]
        add_catalog(spark, found[1])
        yield proxy, lake_config.model_copy(update={"target": found[0]}), found[1]


@pytest.fixture(scope="module")
def on_glue(lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """Glue behind a proxy."""
    with TARGETS["glue on s3"](tmp_path_factory.mktemp("spoiled")) as doc:
        doc["catalog"]["name"] = "spoiled_glue"
        straight, properties = Target.model_validate(doc), doc["catalog"]["properties"]
        add_catalog(spark, straight)
        with proxied(properties["glue.endpoint"]) as (proxy, uri):
            properties["glue.endpoint"] = uri
            yield proxy, lake_config.model_copy(update={"target": Target.model_validate(doc)}), straight


@pytest.fixture(scope="module")
def on_postgresql(
    lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Spoiled]:
    """PostgreSQL behind a proxy."""
    with TARGETS["sql"](tmp_path_factory.mktemp("spoiled")) as doc:
        yield from _behind_tcp(doc, "spoiled_sql", (b"COMMIT",), lake_config, spark)


@pytest.fixture(scope="module")
def on_hive(lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """A metastore of Hive behind a proxy."""
    with TARGETS["hive"](tmp_path_factory.mktemp("spoiled")) as doc:
        changing = (b"create_table", b"alter_table", b"drop_table")
        yield from _behind_tcp(doc, "spoiled_hive", changing, lake_config, spark)


def _behind_tcp(
    doc: dict[str, Any], name: str, changing: tuple[bytes, ...], lake_config: Config, spark: SparkSession
) -> Iterator[Spoiled]:
    doc["catalog"]["name"] = name
    straight, place = Target.model_validate(doc), urlsplit(doc["catalog"]["uri"])
    add_catalog(spark, straight)
    open_catalog(straight).create_namespace_if_not_exists("lost")
    with tcp_proxied(str(place.hostname), place.port or 0, changing) as (proxy, port):
        doc["catalog"]["uri"] = doc["catalog"]["uri"].replace(f":{place.port}", f":{port}")
        yield proxy, lake_config.model_copy(update={"target": Target.model_validate(doc)}), straight


def new_table(config: Config, straight: Target, spark: SparkSession) -> Lake:
    """A table that does not exist yet; the catalog is open."""
    schema = TableSchema(TableId("lost", f"t{next(_numbers)}"), PLAIN, ("id",))
    target = open_target(config, lambda: spark)
    assert target.recover(schema.table) is None
    return Lake(straight, lambda: target, spark, schema, BOUNDARIES)


def spoil_every_step(spoiled: Spoiled, spark: SparkSession, fault: str, preparing: int, naming: int) -> None:
    """The creation, a wave, a merge, the first publish, which names the table, and the last two once more.

    `preparing` requests come before the creation. `naming` is the request of the first publish that is spoiled.
    """
    proxy, config, straight = spoiled
    lake = new_table(config, straight, spark)

    def spoil(passing: int = 0) -> None:
        assert proxy.fault == "", "no request has met the last fault"
        proxy.fault, proxy.passing = fault, passing

    spoil(passing=preparing)
    staged = lake.created()
    spoil()
    staged = lake.wave(staged, [(1, "a"), (2, "b")])
    for number, value in enumerate(("c", "d"), 1):
        spoil()
        staged = lake.merge(staged, (2, value, False), (10 + number, "new", False), pos=20 * number)
        spoil(passing=naming if number == 1 else 0)
        staged = lake.publish(staged)
        loaded = lake.loaded()
        assert (loaded.version, loaded.published) == (staged.version, staged.version)
        assert (2, value) in lake.seen()
    assert lake.seen() == [(1, "a"), (2, "d"), (11, "new"), (12, "new")]


@pytest.mark.long("another fault of what every run has", only=tuple(LONG))
@pytest.mark.parametrize("fault", [*QUICK, *LONG])
@pytest.mark.long("another fault of what every run has", only=("twice",))
@pytest.mark.long(
    "a catalog of its own; test_joint and test_commit lose answers in every run", only=("closed after it",)
)
def test_a_step_takes_effect_once_whatever_rest_answers(
    on_rest: Spoiled, spark: SparkSession, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first publish moves main, then renames the table."""
    monkeypatch.setattr(rest, "_SECONDS", (SILENCE_SECONDS / 3, SILENCE_SECONDS / 3))
    spoil_every_step(on_rest, spark, fault, preparing=1, naming=1)


@pytest.mark.long("another catalog of what runs on REST")
@pytest.mark.parametrize("naming", [0, 1, 2])
@pytest.mark.parametrize("fault", [*QUICK, *LONG])
def test_a_step_takes_effect_once_whatever_glue_answers(
    on_glue: Spoiled, spark: SparkSession, fault: str, naming: int
) -> None:
    """The first publish moves main, registers the final name and drops the other one."""
    spoil_every_step(on_glue, spark, fault, preparing=0, naming=naming)


@pytest.mark.long("another catalog of what runs on REST")
@pytest.mark.parametrize("naming", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_takes_effect_once_if_postgresql_is_gone(
    on_postgresql: Spoiled, spark: SparkSession, fault: str, naming: int
) -> None:
    """The first publish moves main, then renames the table."""
    spoil_every_step(on_postgresql, spark, fault, preparing=0, naming=naming)


@pytest.mark.long("another catalog of what runs on REST")
@pytest.mark.parametrize("naming", [0, 1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_takes_effect_once_if_hive_is_gone(
    on_hive: Spoiled, spark: SparkSession, fault: str, naming: int
) -> None:
    """The first publish moves main, registers the final name and drops the other one."""
    spoil_every_step(on_hive, spark, fault, preparing=0, naming=naming)


def test_a_creation_is_prepared_once_more(on_rest: Spoiled, spark: SparkSession) -> None:
    """The request that prepares it changes nothing: after an error it is sent again."""
    proxy, config, straight = on_rest
    lake = new_table(config, straight, spark)
    proxy.fault = "503 before it"
    assert lake.created() == lake.loaded()


class Busy(Spoiler):
    """Answers so many requests that only read with 503."""

    times = 0

    def meets(self, method: str, _: str, __: dict[str, str]) -> str:
        """No other fault."""
        self.times -= method in {"GET", "HEAD"}
        return "503 before it" if self.times >= 0 else ""


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize(("times", "is_away"), [(3, False), (4, True)])
def test_what_only_reads_is_asked_again(tmp_path: Path, times: int, is_away: bool) -> None:  # noqa: FBT001
    """A few times: a run of many tables reads so often that some answer would always be an error."""
    with rest_server(tmp_path) as straight, spoiled_by(straight, Busy) as (proxy, uri):
        assert isinstance(proxy, Busy)
        doc = {"catalog": {"type": "rest", "uri": uri}, "warehouse": tmp_path / "warehouse"}
        target = IcebergTarget(Target.model_validate(doc))
        assert target.recover(TableId("shop", "orders")) is None
        proxy.times = times
        with pytest.raises(CatalogAway) if is_away else nullcontext():
            target.names()
        assert proxy.times <= 0
