"""After twenty publishes other engines read the same rows.

They are Spark, PyIceberg, DuckDB, ClickHouse and Trino; of Hudi hudi-rs.
"""

import random
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeingest.config import Target
from lakeingest.config.formats import table_name
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableId
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of, shown
from tests.servers import trino
from tests.servers.catalog_servers import TARGETS, add_catalog
from tests.servers.engines import CLICKHOUSE, DUCKDB, HUDI_RS, Engine

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.mysql,
    pytest.mark.spark,
]

PUBLISHES, ROWS, CHANGES = 20, 400, 40
VALUES = (  # a type, and SQL for a value made of a number
    ("TINYINT UNSIGNED NOT NULL", "{n} % 256"),
    ("INT UNSIGNED", "NULLIF(4294967295 - {n}, 4294967290)"),
    ("BIGINT NOT NULL COMMENT 'größe'", "-9223372036854775808 + {n}"),
    ("BIGINT UNSIGNED", "18446744073709551615 - {n}"),
    ("DECIMAL(38,10)", "{n} / 7"),
    ("FLOAT", "{n} / 3"),
    ("DOUBLE NOT NULL", "-{n} / 7"),
    ("DATE", "DATE_ADD('1970-01-01', INTERVAL {n} * 40 - 9000 DAY)"),
    ("DATETIME(6)", "DATE_ADD('2000-01-01 00:00:00.000001', INTERVAL {n} * 100001 MICROSECOND)"),
    ("TIMESTAMP(3) NULL", "FROM_UNIXTIME(1700000000 + {n} + 0.125)"),
    ("TIME(2)", "SEC_TO_TIME({n} * 61 - 9000)"),
    ("YEAR", "1970 + {n} % 80"),
    ("VARCHAR(40) CHARACTER SET utf8mb4", "IF({n} % 5, CONCAT('käse 🧀 ', {n}), '')"),
    ("TEXT", "IF({n} % 3, REPEAT('x', {n} % 90), NULL)"),
    ("VARBINARY(20) NOT NULL", "UNHEX(LPAD(HEX({n}), 6, '0FFE'))"),
    ("BIT(1)", "{n} % 2"),
    ("ENUM('a','b')", "ELT(1 + {n} % 2, 'a', 'b')"),
    ("JSON", "JSON_OBJECT('n', {n}, 'l', JSON_ARRAY(1, NULL, 'ä'))"),
)
COLUMNS = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(VALUES))


def value(n: int) -> str:
    """All values of a row, made of a number."""
    return ", ".join(sql.format(n=n) for _, sql in VALUES)


def assignments(n: int) -> str:
    """The same as an update sets them."""
    return ", ".join(f"c{number} = {sql.format(n=n)}" for number, (_, sql) in enumerate(VALUES))


def published_often(pipe: Pipe) -> None:
    """Two tables, one with a key of two columns; inserts, updates, deletes and moves of keys between publishes."""
    chance = random.Random(PUBLISHES)
    pipe.sql(
        f"CREATE TABLE one (id INT PRIMARY KEY, {COLUMNS}) COMMENT 'all types'",
        f"CREATE TABLE two (a INT, b VARCHAR(20), {COLUMNS}, PRIMARY KEY (a, b))",
    )
    for name, key in (("one", "{0}"), ("two", "{0} % 7, '{0}'")):
        rows = ", ".join(f"({key.format(n)}, {value(n)})" for n in range(ROWS))
        pipe.sql(f"INSERT INTO {name} VALUES {rows}")
    options = {"*.*": TableOptions(chunk_rows=100)}
    pipe.config = pipe.config.model_copy(update={"tables": pipe.config.tables.model_copy(update={"options": options})})
    pipe.run()
    for publish in range(PUBLISHES - 1):
        base = ROWS + publish * CHANGES
        pipe.sql("BEGIN")
        for n in chance.sample(range(ROWS), CHANGES):
            pipe.sql(
                chance.choice(
                    (
                        f"UPDATE one SET {assignments(n + base)} WHERE id = {n}",
                        f"UPDATE one SET id = id + 100000 WHERE id = {n}",
                        f"DELETE FROM one WHERE id = {n}",
                        f"REPLACE INTO one VALUES ({base + n}, {value(n)})",
                    )
                ),
                chance.choice(
                    (
                        f"UPDATE two SET {assignments(n + base)} WHERE a = {n % 7} AND b = '{n}'",
                        f"UPDATE two SET a = a + 10 WHERE a = {n % 7} AND b = '{n}'",
                        f"DELETE FROM two WHERE a = {n % 7} AND b = '{n}'",
                        f"REPLACE INTO two VALUES ({publish}, '{base + n}', {value(n)})",
                    )
                ),
            )
        pipe.sql("COMMIT")
        pipe.run()
    pipe.assert_equal()


def assert_same(found: pa.Table, wanted: pa.Table, engine: str) -> None:
    """The same rows, whatever types an engine gives to the same values."""
    cast = pa.table([found[field.name].cast(field.type) for field in wanted.schema], schema=wanted.schema)
    order = [(name, "ascending") for name in wanted.column_names[:2]]
    one, other = cast.sort_by(order).combine_chunks(), wanted.sort_by(order).combine_chunks()
    assert one.num_rows == other.num_rows, engine
    for name in wanted.column_names:
        same = pc.fill_null(pc.equal(one[name], other[name]), fill_value=False)
        both = pc.or_(same, pc.and_(pc.is_null(one[name]), pc.is_null(other[name])))
        wrong = pc.indices_nonzero(pc.invert(both))
        assert len(wrong) == 0, (engine, name, one[name].take(wrong)[:3], other[name].take(wrong)[:3])


def plain(rows: pa.Table) -> pa.Table:
    """Rows without field ids and other metadata, and with one kind of text."""
    kinds = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    fields = [pa.field(field.name, kinds.get(field.type, field.type)) for field in rows.schema]
    return pa.table([rows[field.name].cast(field.type) for field in fields], schema=pa.schema(fields))


@pytest.mark.long("twenty publishes, and engines that take 800 MB")
def test_other_engines_read_the_rows_of_the_source(pipe: Pipe, subtests: pytest.Subtests) -> None:
    """PyIceberg's rows are those of Spark, which `verify` compares with the source; of the other engines each value is.

    With LAKEINGEST_LAKE="rest on s3" the tables are in S3.
    """
    published_often(pipe)
    target = pipe.config.target
    engines = (HUDI_RS,) if target.format == "hudi" else (DUCKDB, CLICKHOUSE)
    for name in ("one", "two"):
        table = TableId(pipe.database, name)
        spark = by_spark(pipe, table)
        metadata, location, store = "", table_name(target, table), None
        if target.format == "iceberg":
            opened = catalog_of(target).load_table(target.identifier(table))
            metadata, location = opened.metadata_location, opened.location()
            with subtests.test(engine="PyIceberg", table=name):
                assert_same(opened.scan().to_arrow(), spark, "PyIceberg")
            given = target.pyiceberg_properties()
            if location.startswith("s3://"):
                store = {
                    "host": urlsplit(given["s3.endpoint"]).netloc,
                    "key": given["s3.access-key-id"],
                    "secret": given["s3.secret-access-key"],
                    "region": given.get("s3.region", "us-east-1"),
                }
        for engine in engines:
            with subtests.test(engine=engine.name, table=name):
                assert_same(read_by(engine, metadata, location, store), spark, engine.name)


def by_spark(pipe: Pipe, table: TableId) -> pa.Table:
    """The rows of the source, as `verify` has found."""
    return plain(pa.Table.from_batches(shown(pipe.spark, pipe.config.target, table)._collect_as_arrow()))  # noqa: SLF001


def read_by(engine: Engine, metadata: str, location: str, store: dict[str, str] | None) -> pa.Table:
    """The rows by one engine, without the columns that Hudi adds."""
    found = engine.read(metadata, location, store)
    return found.select([name for name in found.column_names if not name.startswith("_hoodie_")])


@pytest.mark.long("twenty publishes, and a server of 800 MB")
@pytest.mark.parametrize("version", ["2", "3"])
def test_trino_reads_the_rows_of_the_source(pipe: Pipe, tmp_path: Path, version: str) -> None:
    """From S3, by the REST catalog. This Trino does not know deletion vectors, and says so."""
    with TARGETS["rest on s3"](tmp_path / "lake") as doc, trino.trino(tmp_path / "trino") as server:
        doc["catalog"]["name"] = f"read_by_trino_{version}"
        doc["properties"] = {"format-version": version}
        target = Target.model_validate(doc)
        add_catalog(pipe.spark, target)
        pipe.config = pipe.config.model_copy(update={"target": target})
        published_often(pipe)
        storage, keys = doc["storage"], doc["storage"]["properties"]
        properties = {
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": doc["catalog"]["uri"],
            "fs.native-s3.enabled": "true",
            "s3.endpoint": storage["endpoint"],
            "s3.region": storage["region"],
            "s3.path-style-access": "true",
            "s3.aws-access-key": keys["s3.access-key-id"],
            "s3.aws-secret-key": keys["s3.secret-access-key"],
        }
        trino.add_catalog(server, "lake", properties)
        refused = []
        for name in ("one", "two"):
            wanted = by_spark(pipe, TableId(pipe.database, name))
            columns = ", ".join(f'"{column}"' for column in wanted.column_names)
            try:
                rows = trino.query(server, f'SELECT {columns} FROM lake."{pipe.database}"."{name}"')
            except AssertionError as error:
                refused.append(str(error))
            else:  # in version 3, a table that has no vector since its last compaction
                assert_same(trino.table(rows, wanted.schema), wanted, "Trino")
        assert set(refused) == ({"Unexpected PUFFIN file format"} if version == "3" else set())
