"""Many tables of a source onto one target: what drives them, and the comparison of readers' rows with all of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from tests.e2e.exact import comparer
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of

DATABASE, TABLE = "_lakeingest_database", "_lakeingest_table"


@dataclass
class Sharded:
    """A pipeline whose tables, of several databases, are shards of one table in the lake."""

    pipe: Pipe
    databases: Sequence[str]

    @classmethod
    @contextmanager
    def on(
        cls,
        pipe_on: Callable[..., Pipe],
        server: LocalServer,
        databases: int,
        pattern: str = "all",
        *,
        global_key: bool = False,
        **options: object,
    ) -> "Iterator[Sharded]":
        """A pipeline on so many empty databases of a server. `pattern`: the name of the shared table."""
        pipe = pipe_on(server)
        names = [f"{pipe.database}_{number}" for number in range(databases)]
        tables = Tables(include=(f"{pipe.database}_*.*",), options={"*.*": TableOptions.model_validate(options)})
        target = pipe.config.target.model_copy(
            update={"table": f"{pipe.database}_lake.{pattern}", "global_key": global_key}
        )
        pipe.config = pipe.config.model_copy(update={"tables": tables.sharing(), "target": target})
        pipe.sql(*(f"CREATE DATABASE {name}" for name in names))
        sharded = cls(pipe, names)
        yield sharded
        pipe.sql(*(f"DROP DATABASE {name}" for name in names))
        sharded.forget()

    @property
    def shards(self) -> list[TableId]:
        """All tables that the source has."""
        with self.pipe.connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE %s",
                (f"{self.pipe.database}\\_%",),
            )
            return sorted(TableId(*row) for row in cursor.fetchall())

    def forget(self) -> None:
        """Take all tables out of the catalog."""
        with catalog_of(self.pipe.config.target) as catalog:
            for (namespace,) in catalog.list_namespaces():
                if namespace.startswith(f"{self.pipe.database}_lake"):
                    with suppress(NoSuchNamespaceError):
                        for name in catalog.list_tables(namespace):
                            catalog.drop_table(name)
                        catalog.drop_namespace(namespace)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """The catalog itself."""
        with catalog_of(self.pipe.config.target) as catalog:
            yield catalog

    @contextmanager
    def table(self, name: str = "all") -> Iterator[Table]:
        """The shared table, as PyIceberg has it."""
        with self.catalog() as catalog:
            yield catalog.load_table((f"{self.pipe.database}_lake", name))

    def assert_exact(self, *, but: Sequence[TableId] = (), name: str = "all") -> pa.Table:
        """What readers see has the rows of all shards, and no others; those of `but` are not compared."""
        with self.table(name) as shared:
            rows = shared.scan().to_arrow()
        shards = [shard for shard in self.shards if shard not in but]
        in_spark = self.pipe.spark.table(f"{self.pipe.config.target.catalog.name}.{self.pipe.database}_lake.{name}")
        assert in_spark.count() == rows.num_rows
        found = {
            TableId(*pair.values())
            for pair in rows.select([DATABASE, TABLE]).group_by([DATABASE, TABLE]).aggregate([]).to_pylist()
        }
        assert found <= {*shards, *but}, found
        for shard in shards:
            of_shard = pc.and_(pc.equal(rows[DATABASE], shard.database), pc.equal(rows[TABLE], shard.name))
            copy = rows.filter(of_shard).drop_columns([DATABASE, TABLE])
            with comparer(self.pipe.administrator, shard.database, self.pipe.config.tables) as compared:
                assert compared.difference(shard.name, copy) == "", shard
        return rows
