"""pipeline.yml: what is understood, and how what is not is named."""

import os
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakeingest.config import FORMATS, Config, load_config, parse_config
from lakeingest.config.formats import spark_properties, table_name
from lakeingest.config.place import Place
from lakeingest.config.startup import StartAt
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.tables.column_choice import ALL_COLUMNS, ColumnChoice
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ConfigError, NotBuiltYet, UsageError

# The whole example of the interface, as far as this version acts on it.
BUILT = r"""
version: 1
name: shop
source:
  type: mysql
  host: 127.0.0.1
  port: 3306
  user: lake
  password: ${MYSQL_PASSWORD}
  tls: {mode: required, ca: ca.pem}
  server_ids: auto
  max_connections: 8
tables:
  include: ["shop.*", "shop_*.orders", "re:shop_[0-9]+\\.orders"]
  exclude: []
  startup: initial
  options:
    "shop.orders": {chunk_rows: auto}
target:
  format: iceberg
  catalog: {type: sql}
  warehouse: ./warehouse
  merge: auto
  history: {keep: 5d, least: 20}
  table: "{database}.{table}"
state: ./state
quality: {suites: ./quality, on_failure: stop}
spark: {jars: auto, conf: {}}
"""

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PIN = "sha256:" + "A" * 43 + "="
LEAST = {
    "name": "shop",
    "source": {"host": "db.example.com", "user": "lake"},
    "tables": {"include": ["shop.*"]},
}


def written(folder: Path, text: str = BUILT) -> Path:
    """A pipeline.yml with this text."""
    path = folder / "pipeline.yml"
    path.write_text(text)
    return path


def parsed(*overrides: str, text: str | None = None, cluster: bool = False, **environment: str) -> Config:
    """The least document, or `text`, with overrides set as `--set` sets them."""
    doc: dict[str, Any] = yaml.safe_load(yaml.safe_dump(LEAST) if text is None else text)
    for override in overrides:
        key, _, value = override.partition("=")
        *parents, last = key.split("/")
        inner = doc
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = yaml.safe_load(value)
    return parse_config(doc, Path("/etc/lake"), environment, cluster=cluster)


def test_the_whole_example_is_understood(tmp_path: Path) -> None:
    """Every key of the interface that is built arrives where it is used."""
    config = load_config(written(tmp_path), environment={"MYSQL_PASSWORD": "s3cret"})
    source = config.source
    assert (config.version, config.name) == (1, "shop")
    assert (source.type, source.host, source.port, source.user) == ("mysql", "127.0.0.1", 3306, "lake")
    assert source.password.get_secret_value() == "s3cret"
    assert (source.tls_mode, source.server_ids, source.max_connections) == ("required", "auto", 8)
    assert config.tables.include == ("shop.*", "shop_*.orders", "re:shop_[0-9]+\\.orders")
    assert config.tables.of(TableId("shop", "orders")).chunk_rows == "auto"
    assert config.target.identifier(TableId("shop", "orders")) == ("shop", "orders")
    assert (config.target.format, config.target.catalog.type) == ("iceberg", "sql")
    assert (config.spark.jars, config.spark.conf) == ("auto", {})
    assert (config.quality.suites, config.quality.on_failure) == (Place.of(tmp_path / "quality"), "stop")


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("12h", 43_200), ("5d", 432_000), ("2w", 1_209_600), ("0s", 0)]
)
def test_a_duration_is_a_number_and_its_unit(text: str, seconds: int) -> None:
    """As in `target.history.keep`."""
    history = parsed(f"target/history/keep={text}").target.history
    assert (history.keep.total_seconds(), history.least) == (seconds, 20)


def test_all_but_name_source_and_include_has_a_default(tmp_path: Path) -> None:
    """The least file is the example with everything else left out."""
    short = load_config(written(tmp_path, yaml.safe_dump(LEAST)), environment={})
    long = load_config(written(tmp_path), ["tables.options={}", "target.catalog={}"], {"MYSQL_PASSWORD": ""})
    assert short.tables == long.tables.model_copy(update={"include": ("shop.*",)})
    assert (short.version, short.target, short.state, short.spark) == (1, long.target, long.state, long.spark)
    assert short.source.port == 3306


def test_soft_deletes_and_metadata_columns_are_choices_of_a_table() -> None:
    """Patterns that match the table may choose one each; what is no such column is named."""
    tables = parsed("tables/options={'*.*': {deletes: soft}, 'shop.*': {metadata: [position, op]}}").tables
    choices = tables.of(TableId("shop", "orders")).choices
    assert (choices.deletes, choices.metadata) == ("soft", ("position", "op"))
    assert tables.of(TableId("crm", "orders")).choices.metadata == ()
    for setting in ("deletes: gone", "metadata: [gtid]"):
        with pytest.raises(ConfigError, match=setting.partition(":")[0]):
            parsed(f"tables/options={{'*.*': {{{setting}}}}}")


def test_columns_are_chosen_by_name() -> None:
    """A later pattern replaces one list and leaves the other; a list of nothing to copy is refused."""
    chosen = "{'*.*': {columns: {exclude: [ssn, iban]}}, 'shop.*': {columns: {include: [id, v]}}}"
    tables = parsed(f"tables/options={chosen}").tables
    assert tables.of(TableId("shop", "orders")).choices.columns == ColumnChoice(("id", "v"), ("ssn", "iban"))
    assert tables.of(TableId("crm", "orders")).choices.columns == ColumnChoice((), ("ssn", "iban"))
    for columns in ("include: []", "exclude: ssn", "hide: [ssn]", "hash: [e], mask: [E]"):
        with pytest.raises(ConfigError, match=columns.partition(":")[0]):
            parsed(f"tables/options={{'*.*': {{columns: {{{columns}}}}}}}")


def test_names_of_columns_in_the_copy_are_pairs_of_names() -> None:
    """A later pattern replaces all of them; no column gets two names, and no two get one."""
    chosen = "{'*.*': {columns: {rename: {a: x}, hash: [a]}}, 'shop.*': {columns: {rename: {B: b, c: 'y z'}}}}"
    tables = parsed(f"tables/options={chosen}").tables
    choices = tables.of(TableId("shop", "orders")).choices.columns
    assert (choices.rename, choices.hash) == ((("B", "b"), ("c", "y z")), ("a",))
    assert tables.of(TableId("crm", "orders")).choices.columns.rename == (("a", "x"),)
    for rename in ("{a: x, A: y}", "{a: x, b: X}", "{a: ''}", "[a]", "{a: [b]}"):
        with pytest.raises(ConfigError, match="rename"):
            parsed(f"tables/options={{'*.*': {{columns: {{rename: {rename}}}}}}}")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            "{cast: {a: int}}",
            r"columns\.cast\.a: .*'int' is no type to which columns are cast; known are bigint, boolean, string",
        ),
        ("{cast: {a: string, A: string}}", "cast has a, A twice"),
        ("{cast: {A: string}, hash: [a]}", "hash and cast both name a"),
        ("{cast: {a: string}, mask: [a]}", "mask and cast both name a"),
    ],
)
def test_a_cast_that_means_nothing_certain_is_refused(columns: str, reason: str) -> None:
    """When the file is read."""
    with pytest.raises(ConfigError, match=reason):
        parsed(f"tables/options={{'*.*': {{columns: {columns}}}}}")


def test_casts_are_choices_of_their_tables() -> None:
    """Later patterns replace the whole list."""
    tables = parsed("tables/options={'shop.*': {columns: {cast: {a: string, b: bigint}}}}").tables
    assert tables.of(TableId("shop", "t")).choices.columns.cast == (("a", "string"), ("b", "bigint"))
    assert tables.of(TableId("crm", "t")).choices.columns == ALL_COLUMNS


def test_a_key_of_hashes_reaches_those_who_read_and_is_shown_by_its_digest() -> None:
    """Options of tables without hashes do not depend on it. A short one is refused without being shown."""
    options = "tables/options={'shop.*': {columns: {hash: [email]}}}"
    config = parsed(options, "tables/hash_key=hush-hush-hush-hush")
    choices = {name: config.tables.of(TableId(name, "t")).choices.columns for name in ("shop", "crm")}
    assert choices["crm"] == ALL_COLUMNS
    assert (choices["shop"].hash, len(choices["shop"].key_id)) == (("email",), 8)
    assert config.source.hash_key == b"hush-hush-hush-hush"
    assert pickle.loads(pickle.dumps(config.source)).of_rows.hash_key == config.source.hash_key  # noqa: S301
    assert "hush" not in repr(config)
    other = parsed(options, "tables/hash_key=another-key-of-hashes").tables.of(TableId("shop", "t")).choices.columns
    assert other.key_id not in {"", choices["shop"].key_id}
    assert parsed(options).tables.of(TableId("shop", "t")).choices.columns.key_id == ""
    with pytest.raises(ConfigError, match=r"tables\.hash_key") as refused:
        parsed("tables/hash_key=hush")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        (
            "tables/options/shop.orders/chunk_key=id",
            r"tables\.options\.shop\.orders\.chunk_key is not built yet: .* are cut by their keys; .* with `key`",
        ),
        ("target={format: hudi, catalog: {uri: 'postgresql://h/d'}}", "target.catalog.uri: hudi .* not built yet"),
        ("target={format: hudi, catalog: {type: glue}}", "target.catalog.type: glue .* has path, hive"),
        ("target/catalog={type: path}", "target.catalog.type: path"),
        (
            "target/warehouse=abfss://bucket/lake",
            "target.warehouse: abfss://bucket/lake is not built yet; this version has .* gs://",
        ),
        ("target={format: hudi, warehouse: 'gs://bucket/lake'}", "target.warehouse: gs://bucket/lake is not built"),
        ("state=abfss://bucket/state", "state: abfss://bucket/state is not built yet"),
        ("target={format: hudi, table: lake.orders}", "target.format: hudi .* target.table without .* name files of"),
        (
            "target={table: lake.orders, publish_together: true}",
            "target.publish_together is not built yet for a target",
        ),
        ("target={table: lake.orders, merge: statement}", "target.merge: statement .* shards"),
        (
            "target={table: lake.orders, global_key: true};tables/options/shop.orders={deletes: soft}",
            "tables.options.shop.orders.deletes: soft with target.global_key .* shards",
        ),
        (
            "target={table: lake.orders, catalog: {type: rest, uri: 'https://a/b', properties:"
            " {rest.signing-name: s3tables}}}",
            "target.catalog of Amazon S3 Tables .* shards",
        ),
        ("target={table: 'lake.{table}', location: '{database}/{table}'}", "target.location .* shards"),
        (
            "target={table: lake.orders, properties: {format-version: '3'}}",
            "target.properties: format-version .* shards",
        ),
        ("target={table: '{database}.all', history: {keep: 1h}};points={every: 1h}", "points.every .* shards"),
        ("target={table: lake.orders};tables/startup=adopt", "tables.startup: adopt .* shards"),
        ("target={table: lake.orders};changelog={table: true}", "changelog.table .* shards"),
        ("target={table: lake.orders};history=scd2", "history .* shards"),
        ("target={table: lake.orders};schema={dropped: drop}", "schema.dropped: drop .* shards"),
        *(
            (
                f"target={{table: lake.orders}};tables/options/shop.orders={{{key}}}",
                f"tables.options.shop.orders.{name}.* shards",
            )
            for name, key in {
                "location": "location: a",
                "partition_by": "partition_by: [id]",
                "sort_by": "sort_by: [id]",
                "history": "history: scd2",
                "properties": "properties: {format-version: '3'}",
            }.items()
        ),
        ("target/table='{schema}.orders'", "target.table"),
        ("target/table='lake.{orders'", "target.table"),
        ("target/table='{database}.x.{table}'", "target.table"),
    ],
)
def test_what_is_not_built_yet_is_refused_by_name(setting: str, named: str) -> None:
    """A key or value of the interface that this version would ignore is an error with exit code 2."""
    with pytest.raises(NotBuiltYet, match=named) as refused:
        parsed(*setting.split(";"))
    assert "built yet" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_only_shards_have_a_global_key() -> None:
    """A copy of its own has its table's key anyway."""
    assert parsed("target={table: lake.orders, global_key: true}").target.global_key
    with pytest.raises(ConfigError, match=r"target\.global_key is for a target\.table without"):
        parsed("target={global_key: true}")


@pytest.mark.parametrize(
    ("pattern", "shared"),
    [
        ("lake.orders", ("lake", "orders")),
        ("lake.{table}", ("lake", "or.ders")),
        ("all_{database}.x", ("all_sh.op", "x")),
        ("{database}.{table}", ("sh.op", "or.ders")),
    ],
)
def test_readers_find_shards_in_one_table(pattern: str, shared: tuple[str, str]) -> None:
    """The copy of each has another name, from which the table of the source is known; rows say where they are from."""
    config, table = parsed(f"target/table='{pattern}'"), TableId("sh.op", "or.ders")
    assert config.target.shown(table) == shared
    assert config.target.source_of(*config.target.identifier(table)) == table
    assert (config.target.source_of(*shared) == table) == (not config.target.is_shared)
    assert config.target.identifier(table) != config.target.identifier(TableId("sh", "op.or.ders"))
    added = () if pattern == "{database}.{table}" else ("database", "table")
    assert config.tables.of(table).choices.metadata == added
    ledger = TableId("_lakeingest_log", "runs")
    assert config.target.shown(ledger) == config.target.identifier(ledger) == ("_lakeingest_log", "runs")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sorce={}", "unknown key sorce; did you mean source?"),
        ("source/hots=a", "unknown key source.hots; did you mean host?"),
        ("source/tls/mod=required", "unknown key source.tls.mod; did you mean mode?"),
        ("tables/includes=[]", "unknown key tables.includes; did you mean include?"),
        ("tables/options/shop.*/chunk_row=5", "unknown key tables.options.shop.*.chunk_row; did you mean chunk_rows?"),
        ("target/warehose=a", "unknown key target.warehose; did you mean warehouse?"),
        ("target/storage={endpont: a}", "unknown key target.storage.endpont; did you mean endpoint?"),
        ("target/catalog/typ=sql", "unknown key target.catalog.typ; did you mean type?"),
        ("target/history/kep=5d", "unknown key target.history.kep; did you mean keep?"),
        ("spark/jar=auto", "unknown key spark.jar; did you mean jars?"),
        ("quality/suite=a", "unknown key quality.suite; did you mean suites?"),
        (
            "zzz=1",
            "unknown key zzz; known are changelog, history, metrics, name, notify, points, quality, schema, source,"
            " spark, state, submit, tables, target, throttle, version",
        ),
        ("submit/emr_serverless={}", "unknown key submit.emr_serverless; did you mean emr-serverless?"),
        (
            "submit/emr-serverless={application_id: a, execution_role_arn: b, region: eu-a-1, bucket: s3://abc, x: 1}",
            "unknown key submit.emr-serverless.x; known are application_id, bucket, execution_role_arn, max_minutes, "
            "region, secrets",
        ),
    ],
)
def test_an_unknown_key_names_the_nearest(setting: str, message: str) -> None:
    """A misspelt key is never ignored."""
    with pytest.raises(ConfigError) as refused:
        parsed(setting)
    assert str(refused.value) == message


@pytest.mark.parametrize("key", ["name", "source", "source.host", "source.user", "tables", "tables.include"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    """What has no default has to be there."""
    doc: dict[str, Any] = yaml.safe_load(yaml.safe_dump(LEAST))
    *parents, last = key.split(".")
    del (doc[parents[0]] if parents else doc)[last]
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, yaml.safe_dump(doc)), environment={})
    assert str(refused.value) == f"{key} is required"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("version=2", "version: "),
        ("name='two words'", "name: "),
        ("source/type=oracle", "source.type: "),
        ("source/port=many", "source.port: "),
        ("source/port=0", "source.port: "),
        ("source/port=65536", "source.port: "),
        ("source/max_connections=1", "source.max_connections: "),
        ("source/tls/mode=perhaps", "source.tls.mode: "),
        ("tables/include=[]", "tables.include: "),
        ("target/history/keep=5", "target.history.keep: "),
        ("target/history/keep=5 days", "target.history.keep: "),
        ("target/history/keep=-5d", "target.history.keep: "),
        ("target/history/keep=1.5d", "target.history.keep: "),
        ("target/history/keep=99999999999d", "target.history.keep: "),
        ("target/history/keep=", "target.history.keep: "),
        ("target/history/least=0", "target.history.least: "),
        ("target/history={least: 9, most: 8}", "target.history: Value error, least (9) is more than most (8)"),
        ("target/history=5d", "target.history: "),
        ("tables/include=shop.orders", "tables.include: "),
        ("tables/include=['re:(']", "tables.include.0: "),
        ("tables/exclude=['re:shop.[']", "tables.exclude.0: "),
        ("tables/options/re:)/chunk_rows=5", "tables.options"),
        ("tables/options/shop.*/chunk_rows=0", "tables.options.shop.*.chunk_rows"),
        ("spark/conf={a: [1]}", "spark.conf.a: "),
        ("quality/on_failure=ignore", "quality.on_failure: "),
    ],
)
def test_a_wrong_value_names_its_key(setting: str, named: str) -> None:
    """Each value is checked when the file is read, in one line."""
    with pytest.raises(ConfigError) as refused:
        parsed(setting)
    assert str(refused.value).startswith(named)
    assert "\n" not in str(refused.value)


def test_copies_begin_where_startup_says() -> None:
    """A word, or a place in the source's history."""
    assert parsed("tables/startup=snapshot_only").tables.copies_once
    latest, position, gtids, *times = (
        parsed(f"tables/startup={value}").tables
        for value in (
            "latest",
            "{position: 'binlog.000001:157'}",
            f"{{gtid: '{UUID}:1-5:7'}}",
            "{time: '2026-11-30T01:00:00+01:00'}",
            "{time: 2026-11-30T00:00:00}",  # without a zone it is in UTC; YAML may make it a time, and a text otherwise
        )
    )
    assert (latest.begins_empty, latest.begins_at) == (True, None)
    assert position.begins_at == StartAt(FilePosition("binlog.000001", 157))
    assert gtids.begins_at == StartAt(None, GtidSet.parse(f"{UUID}:1-5:7"))
    assert [each.begins_at for each in times] == [StartAt(None, time=datetime(2026, 11, 30, tzinfo=UTC))] * 2
    assert not parsed("tables/startup=initial").tables.begins_empty


def test_tables_of_other_tools_are_taken_over_only_if_the_tool_is_named() -> None:
    """The word that it is off, and its columns, may be of two patterns. Hudi is refused by name."""
    several = "tables/options={'*.*': {adopt: {stopped: Airbyte}}, 'shop.orders': {adopt: {drop: ['_x*']}}}"
    table = TableId("shop", "orders")
    adopting = parsed("tables/startup=adopt", several).tables
    assert adopting.adopts
    assert not adopting.begins_empty
    assert (adopting.of(table).takes_over, adopting.of(table).adopt.drop) == (True, ("_x*",))
    assert not parsed("tables/startup=adopt").tables.of(table).takes_over
    assert not parsed(several).tables.of(table).takes_over
    with pytest.raises(ConfigError, match="stopped"):
        parsed("tables/options={'*.*': {adopt: {stopped: ''}}}")
    with pytest.raises(NotBuiltYet, match=r"tables\.startup: adopt is not built yet for hudi"):
        parsed("tables/startup=adopt", "target={format: hudi}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{position: 'binlog.000001'}", "startup.position: 'binlog.000001' is not FILE:BYTE"),
        ("{gtid: 0-1-5}", "startup.gtid: '0-1-5' is not a GTID set of MySQL"),
        ("{gtid: ''}", "startup.gtid: '' is not a GTID set"),
        ("{time: yesterday}", "startup.time: 'yesterday' is not a time such as 2026-"),
        ("{}", "needs either position, gtid or time, and nothing else"),
        (f"{{position: 'binlog.000001:4', gtid: '{UUID}:1'}}", "needs either position, gtid or time, and nothing else"),
        ("{offset: 4}", "needs either position, gtid or time"),
    ],
)
def test_a_wrong_place_to_begin_at_is_a_mistake(value: str, why: str) -> None:
    """It is named with its key."""
    with pytest.raises(ConfigError, match=re.escape(why)):
        parsed(f"tables/startup={value}")


def test_several_errors_are_reported_together() -> None:
    """One look at the message mends the whole file."""
    with pytest.raises(ConfigError, match=r"source\.port: .*; unknown key tabels; did you mean tables\?"):
        parsed("source/port=x", "tabels={}")


@pytest.mark.parametrize(
    "later", ["target/warehouse=abfss://bucket/lake", "changelog={table: true}", "tables/startup=adopt"]
)
def test_what_is_not_built_yet_hides_no_typo(later: str) -> None:
    """A misspelt key is reported whatever else is in the file."""
    with pytest.raises(ConfigError, match=r"unknown key source\.hots; did you mean host\?"):
        parsed(later, "source/hots=a")


def test_changes_are_a_table_of_iceberg_only() -> None:
    """Hudi refuses it by name. Rows stay there as long as changes do, unless the file says otherwise."""
    changelog = parsed("changelog={keep: 3d, table: true, transactions: _lakeingest}").changelog
    assert (changelog.kept_in_table, changelog.transactions) == (timedelta(days=3), "_lakeingest")
    assert parsed("changelog={table: true, table_keep: 400d}").changelog.kept_in_table == timedelta(days=400)
    with pytest.raises(NotBuiltYet, match=r"changelog\.table: True is not built yet for hudi"):
        parsed("changelog={table: true}", "target/format=hudi")


def test_the_state_may_be_in_a_store() -> None:
    """Of Hudi only where its tables are in a store, too: Spark reads its staging."""
    assert str(parsed("state=s3://bucket/state/").state) == "s3://bucket/state"
    hudi = ("state=s3://bucket/state", "target/format=hudi")
    with pytest.raises(ConfigError, match=r"state: s3://bucket/state: .* put target.warehouse into the store, too"):
        parsed(*hudi)
    assert str(parsed(*hudi, "target/warehouse=s3://bucket/lake").state) == "s3://bucket/state"
    assert parsed("target={format: hudi, warehouse: 's3://bucket/lake'}").state.scheme is None


def test_a_store_has_no_keys_of_another_one() -> None:
    """A region is of S3, an endpoint of each."""
    assert parsed("state=gs://bucket/state", "target/storage={endpoint: 'http://localhost:1'}").state.scheme == "gs"
    with pytest.raises(ConfigError, match=r"target.storage.region: state is on gs://, which has no region"):
        parsed("state=gs://bucket/state", "target/storage={region: eu}")


def test_spark_has_the_properties_of_each_store() -> None:
    """Of Hudi under the names of Hadoop's client, which Spark's listings redact; of Iceberg those of its FileIO."""
    keys = "properties: {s3.access-key-id: me, s3.secret-access-key: hidden, s3.session-token: once}"
    storage = f"target/storage={{endpoint: 'http://s3.example.com', region: eu, path_style: true, {keys}}}"
    hudi = spark_properties(parsed("target/format=hudi", "target/warehouse=s3://lake/a", storage).target)
    found = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in hudi.items() if ".s3a." in name}
    assert found["endpoint"] == "http://s3.example.com"
    assert (found["endpoint.region"], found["path.style.access"]) == ("eu", "true")
    assert (found["access.key"], found["secret.key"], found["session.token"]) == ("me", "hidden", "once")
    secret = re.compile("(?i)secret|password|token|access[.-]?key|credential")
    assert {name for name, value in hudi.items() if value in {"me", "hidden", "once"}} == {
        name for name in hudi if secret.search(name) and not name.endswith("provider")
    }
    lake = parsed("target/format=hudi", "target/warehouse=s3://lake/a").target
    assert table_name(lake, TableId("d", "t")) == "s3a://lake/a/d/t"
    google = parsed("target/warehouse=gs://lake/a", "target/catalog={type: rest, uri: 'http://h'}").target
    assert spark_properties(google)["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.gcp.gcs.GCSFileIO"


def test_all_that_is_not_built_yet_is_reported_together() -> None:
    """Keys and values, in one line."""
    with pytest.raises(NotBuiltYet) as refused:
        parsed(
            "tables/options={'*.*': {chunk_key: id}}",
            "state=abfss://bucket/state",
            "target/warehouse=abfss://bucket/lake",
        )
    answer = str(refused.value)
    assert all(named in answer for named in ("chunk_key is not", "abfss://bucket/state is", "abfss://bucket/lake is"))


def test_a_password_is_never_shown() -> None:
    """Neither an error nor the values' text forms hold the password."""
    config = parsed("source/password=${SECRET}", SECRET="hush-hush")
    assert "hush-hush" not in f"{config!r} {config} {config.model_dump()}"
    with pytest.raises(ConfigError) as refused:
        parsed("source/password=[hush-hush]")
    assert "hush-hush" not in str(refused.value)


def test_variables_are_filled_in() -> None:
    """`${VAR}` anywhere in a string, also several; a default holds only where the variable is not set."""
    config = parsed(
        "source/host=${HOST:-db}.${ZONE:-}example",
        "source/port=${PORT}",
        "tables/include=['${DB}.*']",
        "source/password=a$b{c}",
        PORT="3307",
        DB="${NOT_AGAIN}",
        ZONE="z.",
    )
    assert (config.source.host, config.source.port) == ("db.z.example", 3307)
    assert config.tables.include == ("${NOT_AGAIN}.*",)
    assert config.source.password.get_secret_value() == "a$b{c}"
    assert parsed("source/host=${HOST:-db}", HOST="").source.host == ""


def test_a_missing_variable_is_named() -> None:
    """A variable without a value and without a default is an error."""
    with pytest.raises(ConfigError, match="environment variable MYSQL_PASSWORD is not set"):
        parsed("source/password=${MYSQL_PASSWORD}")


@pytest.mark.long("takes seconds")
def test_a_file_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    """Also where the machine's locale knows only ASCII."""
    (tmp_path / "pipeline.yml").write_text(
        'name: x\nsource: {host: a, user: b}\ntables: {include: ["größe.客户"]}\n', encoding="utf-8"
    )
    program = (
        "from pathlib import Path; from lakeingest import load_config;"
        " print(ascii(load_config(Path('pipeline.yml')).tables.include))"
    )
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | plain, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ascii(("größe.客户",))), done.stderr


def test_overrides_win_and_have_types(tmp_path: Path) -> None:
    """`--set` takes YAML values, makes keys that are not there, and is taken in order."""
    overrides = [
        "source.port=3399",
        "source.port=3400",
        "source.host=db.example.com",
        "source.tls={mode: disabled}",
        "tables.include=[a.b, c.*]",
        "spark.conf={spark.driver.memory: 1g}",
        "name=other",
        "source.password=a=b",
    ]
    config = load_config(written(tmp_path), overrides, {})
    assert (config.source.port, config.source.host, config.name) == (3400, "db.example.com", "other")
    assert config.tables.include == ("a.b", "c.*")
    assert config.source.tls_mode == "disabled"
    assert config.spark.conf == {"spark.driver.memory": "1g"}
    assert config.source.password.get_secret_value() == "a=b"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("source.port", "wanted key=value"),
        ("name.first=x", "name holds no keys"),
        ("source.prot=1", "unknown key source.prot; did you mean port?"),
        ("tables.include=[a.b", "tables.include"),
        ("source.user=", "source.user: "),
        ("changelog.table_keep=1d", "table_keep needs table: true"),
        ("changelog.transactions=_lakeingest", "transactions needs table: true"),
        ("changelog.transactions=shop", "changelog.transactions: "),
        ("points.every=10s", "points.every: "),
        ("changelog.keep=7", "changelog.keep: "),
        ("changelog.kept=7d", "unknown key changelog.kept; did you mean keep?"),
    ],
)
def test_a_wrong_override_is_named(tmp_path: Path, override: str, named: str) -> None:
    """An override is checked as the file is."""
    with pytest.raises((ConfigError, NotBuiltYet)) as refused:
        load_config(written(tmp_path), [override], {"MYSQL_PASSWORD": ""})
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command is started; absolute paths stay."""
    folder = tmp_path / "conf"
    folder.mkdir()
    written(folder)
    monkeypatch.chdir(tmp_path)
    config = load_config(
        Path("conf/pipeline.yml"), ["spark.jars=[jars/a.jar, 'hdfs://x/b.jar']"], {"MYSQL_PASSWORD": ""}
    )
    assert config.target.warehouse.path == folder / "warehouse"
    assert config.target.catalog_file == folder / "warehouse" / "catalog.db"
    assert config.state.path == folder / "state"
    assert config.source.tls.ca == folder / "ca.pem"
    assert config.quality.folder == folder / "quality"
    assert config.spark.jars == (str(folder / "jars/a.jar"), "hdfs://x/b.jar")
    absolute = load_config(
        folder / "pipeline.yml", ["state=/var/state", "source.tls.ca=/ca.pem"], {"MYSQL_PASSWORD": ""}
    )
    assert (absolute.state.path, absolute.source.tls.ca) == (Path("/var/state"), Path("/ca.pem"))


def test_suites_are_looked_for_beside_the_file(tmp_path: Path) -> None:
    """In the folder `quality` where there is one; the folder that is named, there or not."""
    path = written(tmp_path, yaml.safe_dump(LEAST))
    assert load_config(path).quality.folder is None
    (tmp_path / "quality").mkdir()
    assert load_config(path).quality.folder == tmp_path / "quality"
    assert load_config(path, ["quality.suites=rules"]).quality.folder == tmp_path / "rules"


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [
        (["shop.*"], [], ["shop.Orders", "shop.items", "shop.orders", "shop.orders.old"]),
        (["shop.orders"], [], ["shop.orders"]),
        (["shop_*.orders"], [], ["shop_1.orders", "shop_22.orders"]),
        (["*.orders"], ["shop_*.*"], ["shop.orders"]),
        ([r"re:shop_[0-9]+\.orders"], [], ["shop_1.orders", "shop_22.orders"]),
        ([r"re:shop_[0-9]"], [], []),
        ([r"re:.*orders"], [r"re:shop_.*"], ["shop.orders"]),
        (["shop.it*", "shop.items"], [], ["shop.items"]),
        (["shop.orders.*"], [], ["shop.orders.old"]),
        (["shop.*"], ["shop.*"], []),
    ],
)
def test_patterns_choose_tables(include: list[str], exclude: list[str], chosen: list[str]) -> None:
    """Globs are per part, `re:` matches the whole name, case counts, exclude wins; the result is sorted."""
    tables = [
        TableId(*name)
        for name in [
            ("shop_22", "orders"),
            ("shop_1", "orders"),
            ("shop", "orders.old"),
            ("shop", "orders"),
            ("shop", "items"),
            ("shop", "Orders"),
        ]
    ]
    found = Tables(include=tuple(include), exclude=tuple(exclude)).select(tables)
    assert [str(table) for table in found] == chosen


def test_later_options_win() -> None:
    """Of several patterns that match a table, the last one that sets an option decides it."""
    options = {
        "*.*": TableOptions(chunk_rows=10),
        "shop.orders": TableOptions(chunk_rows=20),
        "shop.*": TableOptions(),
        "re:shop\\.i.*": TableOptions(chunk_rows="auto"),
    }
    tables = Tables(include=("*.*",), options=options)
    assert tables.of(TableId("shop", "orders")).chunk_rows == 20
    assert tables.of(TableId("shop", "items")).chunk_rows == "auto"
    assert tables.of(TableId("other", "orders")).chunk_rows == 10


@pytest.mark.parametrize(
    ("host", "mode"),
    [
        ("127.0.0.1", "preferred"),
        ("localhost", "preferred"),
        ("::1", "preferred"),
        ("db.example.com", "verify_identity"),
    ],
)
def test_servers_beyond_loopback_prove_who_they_are(host: str, mode: str) -> None:
    """A password leaves the machine to a server that is verified, unless the file says otherwise."""
    assert parsed(f"source/host='{host}'").source.tls_mode == mode
    assert parsed(f"source/host='{host}'", "source/tls/mode=disabled").source.tls_mode == "disabled"
    assert parsed(f"source/host='{host}'", "source/tls/mode=verify_identity").source.tls_mode == "verify_identity"
    assert parsed(f"source/host='{host}'", "source/tls/ca=ca.pem").source.tls_mode == "verify_identity"
    assert parsed(f"source/host='{host}'", f"source/tls/pin={PIN}").source.is_proven


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("auto", range(2**30, 2**31)),
        ("5400-5499", range(5400, 5500)),
        ("5400", range(5400, 5401)),
        ("7-7", range(7, 8)),
    ],
)
def test_server_ids_are_a_range(text: str, ids: range) -> None:
    """Both ends belong to it; one number is a range of one."""
    assert parsed(f"source/server_ids={text}").source.server_id_range == ids


@pytest.mark.parametrize("text", ["0-5", "5-", "-5", "9-5", "a-b", "1-4294967296", "1.5", "''"])
def test_wrong_server_ids_are_refused(text: str) -> None:
    """Ids are from 1 to 2^32 − 1, low before high."""
    with pytest.raises(ConfigError, match="server_ids"):
        parsed(f"source/server_ids={text}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "is not YAML"),
        (b"a: b: c", "is not YAML"),
        (b"name: \xff\xfe", "is not YAML"),
        (b"name: !!python/object:os.system x", "is not YAML"),
        (b"", "holds no keys"),
        (b"# nothing\n", "holds no keys"),
        (b"- a\n- b\n", "holds no keys"),
        (b"words", "holds no keys"),
        (b"1: 2\n", "1"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """What is not YAML, or holds no keys, is one line with the file's name or the key."""
    path = tmp_path / "pipeline.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as refused:
        load_config(path, environment={})
    assert "\n" not in str(refused.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file, and a folder in its place, are named with the reason."""
    with pytest.raises(ConfigError, match=r"none\.yml: No such file"):
        load_config(tmp_path / "none.yml")
    with pytest.raises(ConfigError, match=f"{tmp_path}: Is a directory"):
        load_config(tmp_path)


CLUSTER = ("target/warehouse=s3://company/lake", "target/catalog/type=glue", "state=s3://company/state")


def test_a_cluster_is_given_uris() -> None:
    """Where Spark is elsewhere, warehouse and state are URIs, and Spark has them as they are written."""
    config = parsed(*CLUSTER, cluster=True)
    properties = spark_properties(config.target)
    assert properties["spark.sql.catalog.lake.warehouse"] == "s3://company/lake"
    assert properties["spark.sql.catalog.lake.catalog-impl"] == "org.apache.iceberg.aws.glue.GlueCatalog"
    assert "spark.sql.catalog.lake.uri" not in properties
    assert config.state.uri == "s3://company/state"
    assert parsed("state=/var/state").state.uri == "file:///var/state"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CLUSTER[:2], "state: Value error, state is on this machine; a cluster needs a URI such as s3://bucket/folder"),
        ((*CLUSTER, "target/warehouse=/lake"), "target.warehouse: Value error, /lake is on this machine"),
        ((*CLUSTER, "target/warehouse=file:///lake"), "target.warehouse: Value error, /lake is on this machine"),
        (CLUSTER[1:], "target.warehouse: Value error, warehouse is on this machine"),
    ],
)
def test_a_path_is_nothing_for_a_cluster(settings: tuple[str, ...], message: str) -> None:
    """Neither one that is written nor the default: another machine does not see it."""
    with pytest.raises(ConfigError) as refused:
        parsed(*settings, cluster=True)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("target/catalog={type: rest}", "a catalog of type rest needs its uri"),
        ("target/catalog={type: rest, uri: 'postgresql://h/d'}", "a catalog of type rest needs its uri"),
        ("target/catalog={uri: 'mysql://h/d'}", "a catalog of type sql has no uri, or postgresql://"),
        ("target/catalog={properties: {a: b}}", "the embedded catalog has no properties"),
        ("target/catalog={name: a-b}", "target.catalog.name: String should match pattern"),
    ],
)
def test_a_catalog_that_cannot_be_is_refused(setting: str, message: str) -> None:
    """The message says what is missing."""
    with pytest.raises(ConfigError, match=message):
        parsed(setting)


def test_a_catalog_is_handed_to_spark_and_to_pyiceberg() -> None:
    """Each gets the same properties in its own spelling; a password is in no text of the settings."""
    served = parsed("target/catalog={type: rest, name: c, uri: 'https://h:1', properties: {token: secret}}").target
    given = {"type": "rest", "uri": "https://h:1", "token": "secret"}
    assert served.pyiceberg_properties() == given
    found = spark_properties(served)
    assert {name: found[f"spark.sql.catalog.c.{name}"] for name in given} == given
    database = parsed("target/catalog={uri: 'postgresql://me:p%40ss@127.0.0.1:2/d'}").target
    assert database.pyiceberg_properties()["uri"] == "postgresql+psycopg://me:p%40ss@127.0.0.1:2/d"
    prefix = "spark.sql.catalog.lake."
    jdbc = {name: spark_properties(database)[prefix + name] for name in ("uri", "jdbc.user", "jdbc.password")}
    assert jdbc == {"uri": "jdbc:postgresql://127.0.0.1:2/d", "jdbc.user": "me", "jdbc.password": "p@ss"}
    assert database.catalog_place == "postgresql://127.0.0.1:2/d"
    assert "secret" not in repr(served)
    assert "p%40ss" not in repr(database)


def test_a_sample_query_opens_the_embedded_catalog_by_its_name() -> None:
    """PyIceberg finds no table under another name of the catalog."""
    target = parsed("target/catalog={name: mine}").target
    queries = FORMATS["iceberg"].sample_queries(target, TableId("shop", "orders"))
    assert "SqlCatalog('mine', uri='sqlite:///" in queries["PyIceberg"]
    assert queries["Spark"].endswith("FROM mine.shop.orders")


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ("path", r"target\.catalog\.type: path is not built yet on a cluster; .* has glue, rest, sql"),
        ("sql", "the embedded catalog is a file of this machine"),
        ("null", "the embedded catalog is a file of this machine"),
    ],
)
def test_a_cluster_needs_a_catalog_that_it_can_reach(catalog: str, message: str) -> None:
    """The embedded SQLite is a file of one machine, and some are not built."""
    with pytest.raises(UsageError, match=message):
        parsed(*CLUSTER, f"target/catalog/type={catalog}", cluster=True)
    assert parsed(*CLUSTER, "target/catalog={type: sql, uri: 'postgresql://db/lake'}", cluster=True)
    assert parsed(*CLUSTER, "target/catalog={type: rest, uri: 'http://catalog'}", cluster=True)


def test_a_pipeline_that_is_submitted_runs_here_too() -> None:
    """The key `submit` says where a job runs, and is nothing to any other command."""
    service = "{application_id: a, execution_role_arn: b, region: eu-west-1, bucket: s3://company}"
    known = parsed(f"submit/emr-serverless={service}").submit.emr_serverless
    assert known is not None
    assert known.bucket == "s3://company"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("region=europe", "submit.emr-serverless.region: "),
        ("bucket=company/jobs", "submit.emr-serverless.bucket: "),
        ("bucket='s3://company/a b'", "submit.emr-serverless.bucket: "),
        ("max_minutes=4", "submit.emr-serverless.max_minutes: "),
        ("secrets=[lake]", "submit.emr-serverless.secrets: "),
    ],
)
def test_a_wrong_value_of_a_service_names_its_key(setting: str, named: str) -> None:
    """As any other value does."""
    service = "{application_id: a, execution_role_arn: b, region: eu-west-1, bucket: s3://company}"
    with pytest.raises(ConfigError) as refused:
        parsed(f"submit/emr-serverless={service}", f"submit/emr-serverless/{setting}")
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize(
    ("override", "here"),
    [
        ("state=s3://a/s", r"target\.warehouse \(\S+\) is on this one"),
        ("target={warehouse: s3://a/w, catalog: {type: rest, uri: http://a}}", r"state \(\S+\) is on this one"),
        ("name=x", r"state \(\S+\) and target\.warehouse \(\S+\) are on this one"),
    ],
)
def test_tasks_on_other_machines_need_places_that_they_reach(override: str, here: str) -> None:
    """Neither the state nor the tables can be in folders of the driver's machine; on this one they can."""
    with pytest.raises(ConfigError, match=f"spark.master spark://m:1 tasks run on other machines, and {here}"):
        parsed("spark/conf={spark.master: 'spark://m:1'}", override)
    assert parsed("spark/conf={spark.master: 'local[4]'}", override).on_this_machine


def test_a_cluster_reaches_a_store_and_a_server() -> None:
    """With both there it is a configuration as any other."""
    target = "target={warehouse: s3://a/w, catalog: {type: rest, uri: http://a}}"
    config = parsed("spark/conf={spark.master: yarn}", "state=s3://a/s", target)
    assert (config.spark.master, config.on_this_machine) == ("yarn", ())


def test_each_format_has_its_ways_to_merge() -> None:
    """`auto` is ours; what is none of them is refused."""
    found = [
        parse_config({**LEAST, "target": {"format": name, "merge": merge}}, Path("/"), {}).target.way_of_merging
        for name, merge in (("iceberg", "auto"), ("iceberg", "statement"), ("hudi", "auto"), ("hudi", "statement"))
    ]
    assert found == ["row_delta", "statement"] * 2
    with pytest.raises(ConfigError, match=r"target\.merge: "):
        parse_config({**LEAST, "target": {"merge": "upsert"}}, Path("/"), {})


def test_a_table_is_named_as_we_write_it_or_as_sql_quotes_it() -> None:
    """One whose name has quotes of its own is found first by how we write it."""
    known = [TableId("shop", "orders"), TableId("d.x", "t"), TableId("shop", "`t`"), TableId("shop", "a.b")]
    known += [TableId("shop", 'say "x"'), TableId('"shop"', '"orders""')]
    tables = Tables(include=("*.*",))
    for name, meant in (
        ("shop.orders", known[0]),
        ("`shop`.`orders`", known[0]),
        ("shop.`orders`", known[0]),
        ("`d.x`.t", known[1]),
        ("`d.x`.`t`", known[1]),
        ("shop.`t`", known[2]),
        ("shop.```t```", known[2]),
        ("shop.a.b", known[3]),
        ("`shop`.`a.b`", known[3]),
        ('"shop"."orders"', known[0]),
        ('shop."orders"', known[0]),
        ('"d.x".`t`', known[1]),
        ('"shop"."`t`"', known[2]),
        ('"shop"."a.b"', known[3]),
        ('shop.say "x"', known[4]),
        ('"shop"."say ""x"""', known[4]),
        ('`shop`.`say "x"`', known[4]),
        ('"shop"."orders""', known[5]),
        ('`"shop"`.`"orders""`', known[5]),
    ):
        assert tables.choose(known, [name, str(meant)]) == [meant], name
    for name in (
        "orders",
        "d.x.t",
        "`shop`",
        "shop.orders.",
        "shop.`orders",
        '"shop.orders"',
        'shop."orders',
        '`shop".orders',
    ):
        with pytest.raises(UsageError, match="is not among"):
            tables.choose(known, [name])
