"""Properties and folders of copies: `target.properties`, `target.location`, and both in `tables.options`."""

import re

import pytest

from lakeingest.config import Target
from lakeingest.config.location import folder_of
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ConfigError, NotBuiltYet
from tests.config.test_load import parsed

ORDERS = TableId("shop", "orders")


def test_properties_of_tables_are_added_to_those_of_all() -> None:
    """Of several patterns later ones win, property by property; numbers and booleans become Iceberg's text."""
    config = parsed(
        "target/properties={write.object-storage.enabled: true, owner: lake}",
        "tables/options={'*.*': {properties: {write.parquet.compression-level: 5, team: a}},"
        " shop.orders: {properties: {team: b}}}",
    )
    assert config.target.properties == {"write.object-storage.enabled": "true", "owner": "lake"}
    assert config.tables.of(ORDERS).properties == {"write.parquet.compression-level": "5", "team": "b"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("commit.retry.num-retries", "a commit of lakeingest is sent again only after it was looked up"),
        ("gc.enabled", "target.history"),
        ("history.expire.max-snapshot-age-ms", "target.history"),
        ("write.merge.mode", "merge-on-read"),
        ("lakeingest.table", "lakeingest's own"),
        ("write.data.path", "target.location"),
        ("write.parquet.page-size-bytes", "sizes"),
        ("write.format.default", "Parquet"),
        ("current-schema", "reserves"),
    ],
)
@pytest.mark.parametrize("where", ["target/properties", "tables/options/shop.orders/properties"])
def test_a_property_that_breaks_a_promise_is_refused_with_the_reason(where: str, name: str, reason: str) -> None:
    """And the key that has it is named."""
    with pytest.raises(ConfigError) as raised:
        parsed(f"{where}={{{name}: 1}}")
    for part in (where.replace("/", "."), f"{name} cannot be set: ", reason):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "{write.parquet.compression-codec: lzo}",
        "{format-version: 1}",
        "{format-version: 4}",
        "{a: null}",
        "{a: {b: c}}",
        "[a]",
    ],
)
def test_a_property_with_a_value_that_nobody_can_use_is_refused(wrong: str) -> None:
    """Spark would store it, and our writers would ignore it."""
    with pytest.raises(ConfigError, match=r"target\.properties"):
        parsed(f"target/properties={wrong}")


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("raw/{database}/{table}", "/data/lake/raw/shop/orders"),
        ("{database}.db/{table}/", "/data/lake/shop.db/orders"),
        ("file:///elsewhere/{table}/of {database}", "/elsewhere/orders/of shop"),
        ("s3://bucket/{database}/{table}", "s3://bucket/shop/orders"),
    ],
)
def test_a_folder_is_below_the_warehouse_or_elsewhere(location: str, folder: str) -> None:
    """A slash at its end means nothing."""
    assert folder_of(location.rstrip("/"), Place("/data/lake"), ORDERS) == Place(folder)


def test_names_that_are_unsafe_in_a_uri_have_folders_of_their_own() -> None:
    """Also where they are alike without those letters."""
    names = ["a b", "a_b", "a/b", "a%b", "ä", "a.b"]
    found = {folder_of("{database}/{table}", Place("s3://b/w"), TableId("x", name)).uri for name in names}
    assert len(found) == len(names)
    assert all(uri.isascii() and uri.count("/") == 5 and "%" not in uri for uri in found)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("target/location='{table}'", "target.location: Value error, it needs {database} and {table}"),
        ("target/location='{database}/{table}/{day}'", "other fields than {database} and {table}"),
        ("target/location='../{database}/{table}'", "neither a folder below the warehouse nor a URI"),
        ("target/location='s3://bucket/{database}/{table}'", "the same kind of store as target.warehouse"),
        ("tables/options={'shop.*': {location: x}}", "options.shop.*.location: it needs {database} and {table}"),
        ("tables/options={'re:shop.orders': {location: x}}", "it needs {database} and {table}"),
    ],
)
def test_a_folder_that_cannot_be_is_refused(override: str, message: str) -> None:
    """Two tables in one folder would remove each other's files."""
    with pytest.raises(ConfigError) as raised:
        parsed(override)
    assert message in str(raised.value)


def test_no_name_stands_for_a_folder_above_or_for_hudis_own() -> None:
    """A table of MySQL may be called `..`; its folder has one part all the same."""
    target = Target(warehouse=Place("/data/lake"))
    for name, part in (("..", "%2E%2E"), (".", "%2E"), (".hoodie", "%2Ehoodie"), ("a.b", "a.b"), ("x y", "x%20y")):
        assert target.folder(TableId("shop", name)) == Place(f"/data/lake/shop/{part}")
        assert target.folder(TableId(name, "t")) == Place(f"/data/lake/{part}/t")


def test_a_table_may_have_a_folder_without_a_pattern() -> None:
    """Where the pattern of its options names one table only."""
    config = parsed("tables/options={shop.orders: {location: archive/x}}")
    assert config.tables.of(ORDERS).location == "archive/x"


def test_partitions_are_written_in_one_form() -> None:
    """What is no partition is refused with the item."""
    shop = "{shop.orders: {partition_by: ['days(at)', 'bucket(4,id)']}, 'shop.*': {deletes: soft}}"
    config = parsed(f"tables/options={shop}")
    options = config.tables.of(ORDERS)
    assert options.partition_by == ("day(at)", "bucket(4, id)")
    assert [str(field) for field in options.partitions] == ["day(at)", "bucket(4, id)"]
    for text in ("dayz(at)", "void(at)", "day(at, id)"):
        with pytest.raises(ConfigError, match=re.escape(text)):
            parsed(f"tables/options={{shop.orders: {{partition_by: ['{text}']}}}}")


def test_version_3_of_icebergs_format_is_chosen_for_all_tables_or_for_one() -> None:
    """Where Spark merges by statements, it is refused, never ignored."""
    one = "tables/options={shop.orders: {properties: {format-version: 3}}}"
    assert parsed(one).tables.of(ORDERS).properties == {"format-version": "3"}
    assert parsed("target/properties={format-version: '3'}").target.properties == {"format-version": "3"}
    for chosen, where in ((one, r"tables\.options\.shop\.orders"), ("target/properties={format-version: 3}", "target")):
        with pytest.raises(NotBuiltYet, match=f"{where}.properties: format-version 3 with target.merge: statement"):
            parsed(chosen, "target/merge=statement")


def test_a_catalog_that_cannot_publish_several_tables_at_once_refuses_the_key() -> None:
    """By name, whatever the value of the others; without the key nothing changes."""
    assert not parsed("target/format=iceberg").target.publish_together
    assert parsed("target/publish_together=true").target.publish_together
    for kind, uri in (("glue", ""), ("hive", ", uri: 'thrift://host:9083'")):
        with pytest.raises(ConfigError, match=f"publish_together: a catalog of type {kind} cannot commit several"):
            parsed(f"target={{publish_together: true, warehouse: 's3://b/f', catalog: {{type: {kind}{uri}}}}}")
    with pytest.raises(NotBuiltYet, match=r"target\.publish_together: hudi tables do not have it yet"):
        parsed("target/format=hudi", "target/publish_together=true")


def test_hudi_has_partitions_and_no_sort_orders_yet() -> None:
    """The latter is refused, never ignored."""
    options = parsed("target/format=hudi", "tables/options/shop.orders/partition_by=[d]").tables.of(ORDERS)
    assert options.partition_by == ("d",)
    with pytest.raises(NotBuiltYet, match="sort_by: hudi tables do not have it yet"):
        parsed("target/format=hudi", "tables/options/shop.orders/sort_by=[d]")


def test_sort_orders_are_written_in_one_form() -> None:
    """What is no column is refused with the item."""
    options = parsed("tables/options={shop.orders: {sort_by: ['`a` DESC', b asc]}}").tables.of(ORDERS)
    assert options.sort_by == ("a desc", "b")
    assert [str(field) for field in options.sorting] == ["a desc", "b"]
    with pytest.raises(ConfigError, match=re.escape("days(at)")):
        parsed("tables/options={shop.orders: {sort_by: ['days(at)']}}")


@pytest.mark.parametrize("key", ["properties={a: b}", "location='{database}/{table}'"])
@pytest.mark.parametrize("where", ["target", "tables/options/shop.orders"])
def test_hudi_has_neither_yet(where: str, key: str) -> None:
    """Refused, never ignored."""
    with pytest.raises(NotBuiltYet, match=key.partition("=")[0]):
        parsed("target/format=hudi", f"{where}/{key}")


@pytest.mark.parametrize("usual", ["none", "scd2"])
def test_a_table_has_the_history_that_its_options_say_or_else_that_of_all(usual: str) -> None:
    """So one table can be without a history, or be the only one with one."""
    config = parsed(f"history={usual}", "tables/options={shop.logs: {history: none}, shop.people: {history: scd2}}")
    tables = (TableId("shop", name) for name in ("orders", "logs", "people"))
    assert [config.tables.history_of(table, config.history) for table in tables] == [usual, "none", "scd2"]
    with pytest.raises(ConfigError, match=r"history: Input should be 'none' or 'scd2'"):
        parsed("history=scd1")
