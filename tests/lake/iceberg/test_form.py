"""What readers of an Iceberg table see beside its rows: comments, required columns, properties, and its folder."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import NULL_DATES, Choices, Column, Kind
from lakeingest.errors import NotOurTable
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.tables.evolution import GIVEN, Form
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import building
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False, comment="the number\nof it"),
    Column("v", Kind.STRING, source_type("text"), comment="größe"),
    Column("w", Kind.INT32, source_type("int"), nullable=False),
)


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table of three columns, two of them with comments."""
    made = lake_of(COLUMNS)
    return replace(made, schema=replace(made.schema, comment="all of it"))


def asked(lake: Lake, options: Mapping[str, Any], **settings: Any) -> Lake:
    """The same table, with other settings of the target and other options of its own."""
    target = config.Target.model_validate(
        {**lake.settings.model_dump(), **settings, "warehouse": lake.settings.warehouse}
    )
    return replace(
        lake,
        settings=target,
        open=lambda: IcebergTarget(
            target,
            lambda _: TableOptions.model_validate(options),
            waiting=Local(target.warehouse.path / "waiting"),
            open_spark=lambda: lake.spark,
        ),
    )


def commented(lake: Lake, comment: str, **comments: str) -> Lake:
    """The same table, whose source has these comments now, and no others."""
    columns = tuple(replace(one, comment=comments.get(one.name, "")) for one in lake.schema.columns)
    return replace(lake, schema=replace(lake.schema, comment=comment, columns=columns))


def docs(raw: Raw) -> dict[str, str | None]:
    """The comments of the columns, as PyIceberg reads them."""
    return {field.name: field.doc for field in raw().schema().fields}


def again(lake: Lake, pos: int) -> None:
    """One more publish."""
    lake.publish(lake.merge(lake.loaded(), (pos, "x", 1, False), pos=pos))


def test_a_new_table_has_the_comments_of_the_source(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """Spark shows them, too."""
    lake.published((1, "a", 1))
    assert docs(raw) == {"id": "the number\nof it", "v": "größe", "w": None}
    described = {row[0]: row[2] for row in spark.sql(f"DESCRIBE {config.CATALOG}.{lake.table}").collect()}
    assert (described["v"], raw().properties["comment"]) == ("größe", "all of it")


def test_comments_follow_the_source_with_the_next_publish(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """One that the source has no more is taken back; what others wrote where the source says nothing stays."""
    lake.published((1, "a", 1))
    spark.sql(f"ALTER TABLE {config.CATALOG}.{lake.table} ALTER COLUMN w COMMENT 'theirs'")
    now = commented(lake, "other", id="key")
    again(now, 30)
    assert docs(raw) == {"id": "key", "v": None, "w": "theirs"}
    assert raw().properties["comment"] == "other"
    again(commented(lake, ""), 40)
    assert docs(raw) == {"id": None, "v": None, "w": "theirs"}
    assert not {"comment", GIVEN} & raw().properties.keys()
    schemas = len(raw().metadata.schemas)
    again(now, 50)
    again(now, 60)
    assert len(raw().metadata.schemas) <= schemas + 1
    assert len(lake.seen()) == 5
    assert now.rows(now.loaded()) == now.seen()


def test_rows_and_comments_become_visible_in_one_commit(lake: Lake, raw: Raw) -> None:
    """Until then readers see the comments of before; a publish that fails brings none."""
    lake.published((1, "a", 1))
    now = commented(lake, "other", id="key")
    staged = now.merge(now.loaded(), (2, "b", 2, False), pos=30)
    assert (docs(raw)["id"], raw().properties["comment"]) == ("the number\nof it", "all of it")
    before = raw().metadata_location
    now.publish(staged)
    table = raw()
    assert table.metadata.metadata_log[-1].metadata_file == before
    assert table.metadata.current_snapshot_id == staged.version
    assert (docs(raw)["id"], table.properties["comment"]) == ("key", "other")


def test_columns_that_are_never_null_are_required(lake_of: Callable[..., Lake], catalog: SqlCatalog) -> None:
    """A date is nullable where the user chose NULL for zero dates; what can be NULL stays optional."""
    columns = (
        *COLUMNS,
        Column("day", Kind.DATE, source_type("date"), nullable=True, choice=NULL_DATES),
    )
    lake = lake_of(columns)
    lake = replace(lake, schema=replace(lake.schema, choices=Choices(deletes="soft", metadata=("op", "committed_at"))))
    lake.created()
    [name] = building(catalog, lake)
    schema = catalog.load_table((lake.table.database, name)).schema()
    assert {field.name for field in schema.fields if field.required} == {
        "id",
        "w",
        "_lakeingest_op",
        "_lakeingest_deleted",
    }
    assert schema.identifier_field_names() == {"id"}


def test_a_copy_of_an_earlier_version_stays_as_it_is(lake_of: Callable[..., Lake], raw: Raw, lake: Lake) -> None:
    """Its columns are optional, and Iceberg makes no such column required; it gets the comments."""
    optional = replace(
        lake,
        schema=replace(lake.schema, columns=(COLUMNS[0], COLUMNS[1], replace(COLUMNS[2], nullable=True, comment=""))),
    )
    commented(optional, "").published((1, "a", 1))
    again(lake, 30)
    assert {field.name for field in raw().schema().fields if field.required} == {"id"}
    assert docs(raw)["v"] == "größe"
    assert lake.seen() == [(1, "a", 1), (30, "x", 1)]


def test_someone_may_let_a_column_have_nulls(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """That changes no row; the copy goes on, and the column stays as they made it."""
    lake.published((1, "a", 1))
    spark.sql(f"ALTER TABLE {config.CATALOG}.{lake.table} ALTER COLUMN w DROP NOT NULL")
    again(lake, 30)
    assert {field.name for field in raw().schema().fields if field.required} == {"id"}
    assert lake.seen() == [(1, "a", 1), (30, "x", 1)]


def test_properties_follow_pipeline_yml_with_the_next_publish(lake: Lake, raw: Raw) -> None:
    """What is taken out of it is taken back, to our own value if there is one; what others set stays."""
    dictionary, codec = "write.parquet.dict-size-bytes", "write.parquet.compression-codec"
    wide = asked(lake, {"properties": {dictionary: 1 << 20}}, properties={codec: "gzip", "team": "a"})
    wide.published((1, "a", 1))
    with raw().transaction() as transaction:
        transaction.set_properties({"theirs": "x"})
    assert {codec: "gzip", "team": "a", dictionary: str(1 << 20)}.items() <= raw().properties.items()
    again(asked(lake, {}, properties={"team": "b"}), 30)
    found = raw().properties
    assert (found.get(codec), found["team"], found[dictionary], found["theirs"]) == (None, "b", str(64 << 10), "x")
    again(commented(asked(lake, {}), ""), 40)
    assert not {"team", GIVEN} & raw().properties.keys()


def test_a_record_of_what_we_set_that_someone_damaged_means_none(lake: Lake, raw: Raw) -> None:
    """Then nothing is taken back."""
    lake.published((1, "a", 1))
    for wrong in ("{", "[]", '{"comments": 1}'):
        with raw().transaction() as transaction:
            transaction.set_properties({GIVEN: wrong})
        again(commented(lake, "", v="new"), 30)
    assert docs(raw) == {"id": "the number\nof it", "v": "new", "w": None}


def test_a_comment_fits_the_catalog(lake: Lake) -> None:
    """Glue and Hive store one line of 255 characters for a column; the others store all of it."""
    long = commented(lake, "t", v="a\r\n" + "b" * 400).schema
    found = {name: Form.of(long, {}, name).comments["v"] for name in ("glue", "hive", "rest", "sql")}
    assert found["rest"] == found["sql"] == "a\r\n" + "b" * 400
    assert found["glue"] == found["hive"] == "a " + "b" * 252 + "…"


def test_a_table_is_in_the_folder_that_the_user_chose(lake: Lake, raw: Raw) -> None:
    """A new copy after a DROP TABLE, too, which leaves the files of the old one; `maintain` removes them."""
    placed = asked(lake, {}, location="placed/{database}.db/{table}")
    placed.published((1, "a", 1))
    folder = Path(raw().location().removeprefix("file:"))
    assert folder == lake.settings.warehouse.path / "placed" / f"{lake.table.database}.db" / lake.table.name
    raw().catalog.drop_table(raw().name())
    placed.published((2, "b", 2))
    assert raw().location() == folder.as_uri()
    for file in folder.rglob("*.*"):
        os.utime(file, (time.time() - 10**7,) * 2)
    assert placed.open().remove_leftovers(lake.table, timedelta(days=1))[0] > 0
    again(placed, 30)
    assert placed.seen() == [(2, "b", 2), (30, "x", 1)]


def test_a_folder_that_is_not_free_is_refused(lake: Lake, lake_of: Callable[..., Lake]) -> None:
    """It has files of others, or another table; or it is within another table's folder."""
    asked(lake, {"location": f"x/{lake.table.name}"}).published((1, "a", 1))
    taken = lake.settings.warehouse.path / "y" / lake.table.name
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("theirs")
    for location, reason in (
        (f"x/{lake.table.name}", "has files of something else"),
        (f"x/{lake.table.name}/in/it", "is in the folder of another table"),
        ("x", "has files of something else"),
        (f"y/{lake.table.name}", "has files of something else"),
    ):
        other = asked(lake_of(COLUMNS), {"location": location})
        with pytest.raises(NotOurTable, match=reason):
            other.created()
        assert other.open().recover(other.table) is None


def test_the_folder_of_a_table_stays_where_it_is(lake: Lake, raw: Raw) -> None:
    """Another location in pipeline.yml is for new copies."""
    lake.published((1, "a", 1))
    before = raw().location()
    again(asked(lake, {}, location="{database}/{table}"), 30)
    assert raw().location() == before
