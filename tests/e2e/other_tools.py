"""Tables of the lake as other tools write them: Spark's own writer, and deletes by equality as Flink has them."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeingest.config import CATALOG
from lakeingest.config.adopt import Adopt
from lakeingest.config.tables import TableOptions
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from tests.e2e.pipe import Pipe


def adopting(
    pipe: Pipe, *, stopped: str | None = "a job of Spark", drop: Sequence[str] = (), **options: object
) -> None:
    """Let the tables of other tools become copies from now on."""
    before = pipe.config.tables
    given = before.options["*.*"].model_dump(exclude_unset=True)
    every = TableOptions.model_validate({**given, "adopt": Adopt(stopped=stopped, drop=tuple(drop)), **options})
    tables = before.model_copy(update={"startup": "adopt", "options": {"*.*": every}})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def name_of(pipe: Pipe, table: str) -> str:
    """The table in Spark's words."""
    return f"{CATALOG}.{pipe.database}.`{table}`"


def frame(pipe: Pipe, table: str, columns: str, select: str = "*") -> DataFrame:
    """The rows of a table of the source, as a job of Spark has them; `columns` are Spark's types."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT {select} FROM `{table}`")
        return pipe.spark.createDataFrame(list(cursor.fetchall()), columns)


def write(pipe: Pipe, table: str, rows: DataFrame, **properties: str) -> None:
    """What `df.writeTo(…).create()` makes of the rows, or appends if the table is there."""
    namespace(pipe)
    writer = rows.writeTo(name_of(pipe, table))
    if pipe.spark.catalog.tableExists(name_of(pipe, table)):
        writer.append()
        return
    for key, value in properties.items():
        writer = writer.tableProperty(key.replace("_", "-"), value)
    writer.create()


def namespace(pipe: Pipe) -> None:
    """The namespace of the tables, in a catalog that is there."""
    open_catalog(pipe.config.target).close()  # the embedded one makes its file
    pipe.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{pipe.database}")


def java_table(session: SparkSession, name: str) -> Any:
    """The table as the Java API of Iceberg has it: Flink and debezium-server write by it."""
    spark: Any = session
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)  # noqa: SLF001


def delete_by_equality(
    session: SparkSession, name: str, key: Sequence[str], values: Iterable[Sequence[Any]], *, whole_rows: bool = False
) -> None:
    """One commit of a file of deletes by equality, by Iceberg's own writer.

    With only the columns of the key, as Flink's sink in upsert mode and debezium-server write them (`TypeUtil.select`),
    or with `whole_rows`, as Flink's sink writes them otherwise.
    """
    spark: Any = session
    jvm, gateway, loaded = spark._jvm, spark._sc._gateway, java_table(session, name)  # noqa: SLF001
    iceberg, schema = jvm.org.apache.iceberg, loaded.schema()
    ids = [schema.findField(column).fieldId() for column in key]
    chosen = jvm.java.util.HashSet()
    for one in ids:
        chosen.add(one)
    of_deletes = schema if whole_rows else iceberg.types.TypeUtil.select(schema, chosen)
    array = gateway.new_array(jvm.int, len(ids))
    for place, one in enumerate(ids):
        array[place] = one
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(loaded)
    factory = builder.equalityFieldIds(array).equalityDeleteRowSchema(of_deletes).build()
    format_ = iceberg.FileFormat.PARQUET
    out = iceberg.io.OutputFileFactory.builderFor(loaded, 1, 1).format(format_).build().newOutputFile()
    writer = factory.newEqualityDeleteWriter(out, loaded.spec(), None)
    for row in values:
        record = iceberg.data.GenericRecord.create(of_deletes)
        for column, value in zip(key, row, strict=True):
            record.setField(column, value)
        writer.write(record)
    writer.close()
    loaded.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def snapshots(pipe: Pipe, table: str) -> list[Any]:
    """The summaries of all snapshots, the oldest first."""
    query = f"SELECT snapshot_id, operation, summary FROM {name_of(pipe, table)}.snapshots ORDER BY committed_at"
    return list(pipe.spark.sql(query).collect())
