"""Copies of the tables of histories: in a lake by whole runs, or in memory.

In memory the product reads, decodes and decides as in a run, in the order of `pipeline.schema.lifting`: chunks, row
events, DDL, definitions, defaults, lifts and foreign keys are its own. Only the rows are here, in Arrow, without a
commit. So a history takes some tenths of a second, where one in a lake takes ten.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pymysql
from pydantic import SecretStr

from lakeingest.config import Source
from lakeingest.config.tables import Tables
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.ddl.alteration import Alteration, added, lifts
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.tables import change
from lakeingest.core.tables.change import DELETED, RowKind
from lakeingest.core.tables.keys import EVERY_KEY
from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, PreflightFailed, SchemaChanged, UnsupportedEvent
from lakeingest.files.local import Local
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect, written_position
from lakeingest.mysql.default_values import with_default_values
from lakeingest.mysql.preflight.foreign_keys import Unlogged, unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.schema_reader import read_schema, read_stable_schema
from lakeingest.pipeline.binlog.segment_task import Decoded, SpoolSegment
from lakeingest.rows import constants, rows_after_changes, table_schema
from lakeingest.spool.manifest import Manifest
from tests.e2e.ddl_histories import Stage, staged, with_options
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of, shown
from tests.servers.accounts import copier_of

EPOCH = 1
DELETES = pa.array([kind.value for kind in RowKind if kind.is_delete], pa.int8())


@dataclass(frozen=True)
class Copy:
    """Rows, and the definition that they have."""

    schema: TableSchema
    rows: pa.Table


class CopiesInMemory:
    """Copies of tables of a database. `outcomes` counts how they came over DDL: "followed", or "read again"."""

    def __init__(self, source: Source, database: str, choices: Callable[[str], Choices], folder: Local) -> None:
        self._source, self._database, self._choices, self._folder = source, database, choices, folder
        (folder / "data").mkdir(parents=True)
        self._copies: dict[TableId, Copy] = {}
        self._at: FilePosition | None = None
        self._server = ""
        self.outcomes = Counter[str]()

    def rows(self, name: str) -> pa.Table:
        """The rows of a copy."""
        return self._copies[self._named(name)].rows

    def renew(self, names: Iterable[str]) -> dict[str, Exception]:
        """Bring the copies of these tables up to date while nobody writes; those that stop, each with its error.

        The copies of other tables are given up.
        """
        tables, stopped = [self._named(name) for name in names], dict[str, Exception]()
        self._copies = {table: copy for table, copy in self._copies.items() if table in tables}
        with connect(self._source) as connection:
            self._server, now = server_state(connection).uuid, written_position(connection)
            schemas = {table: copy.schema for table, copy in self._copies.items()}
            decoded = None if self._at in {None, now} else self._decoded(self._at, now, schemas, follows=True)
            self._at = now
            keys = unlogged_keys(Server.of(connection), tables)
            for table in tables:
                try:
                    self._renew(connection, table, decoded)
                    self._read_cascaded(connection, table, keys)
                except LakeIngestError as error:
                    self._copies.pop(table, None)
                    stopped[table.name] = error
        for file in (self._folder / "data").iterdir():
            file.unlink()
        return stopped

    def _named(self, name: str) -> TableId:
        return TableId(self._database, name)

    def _renew(self, connection: pymysql.Connection, table: TableId, decoded: Decoded | None) -> None:
        if table not in self._copies:
            self._read(connection, table)
        elif decoded is not None:
            try:
                self._follow(connection, table, decoded)
            except (NotLiftable, LakeIngestError) as error:
                if not _is_by_ddl(error):
                    raise
                self.outcomes["read again"] += 1
                self._read(connection, table)

    def _read_cascaded(self, connection: pymysql.Connection, table: TableId, keys: Unlogged) -> None:
        """All rows of a table that foreign keys change outside the binlog; a run reads fewer of them."""
        if table in keys.unknown:
            raise PreflightFailed(f"{table}: its foreign keys are not known")
        if table in keys.keys:
            self._read(connection, table)

    def _read(self, connection: pymysql.Connection, table: TableId) -> None:
        """All rows by the definition of now."""
        schema = read_schema(connection, table, self._choices(table.name))
        read = read_chunk(self._source, schema, Chunk(table, EVERY_KEY), self._server, EPOCH)
        self._copies[table] = Copy(schema, read.rows)

    def _follow(self, connection: pymysql.Connection, table: TableId, decoded: Decoded) -> None:
        """The changes of the table up to its DDL, then a lift, and so on."""
        if error := decoded.stopped.get(table):
            raise error
        copy, ahead = self._copies[table], [one for one in decoded.manifests if table in one.alterations]
        for manifest in decoded.manifests:
            if table in manifest.tables:  # up to the first DDL
                copy = self._merged(copy, manifest)
        for at, manifest in enumerate(ahead):
            lift = self._lift(connection, copy.schema, [one.alterations[table] for one in ahead[at:]])
            copy = Copy(lift.after, _lifted(copy.rows, lift, empties=manifest.alterations[table].empties))
            stop = ahead[at + 1].start if at + 1 < len(ahead) else decoded.manifests[-1].stop
            if stop != manifest.stop:
                after = self._decoded(manifest.stop, stop, {table: copy.schema})
                if error := after.stopped.get(table):
                    raise error
                copy = self._merged(copy, after.manifest)
            self.outcomes["followed"] += 1
        self._copies[table] = copy

    def _lift(self, connection: pymysql.Connection, before: TableSchema, alterations: Sequence[Alteration]) -> Lift:
        """Over the first of them; NotLiftable."""
        now = read_stable_schema(connection, before.table, before.choices)
        now = with_default_values(self._source, now, added(before, alterations, now))
        return lifts(before, alterations, now)[0]

    def _decoded(
        self,
        start: FilePosition,
        stop: FilePosition,
        schemas: dict[TableId, TableSchema],
        *,
        follows: bool = False,
    ) -> Decoded:
        segment = Segment(self._server, EPOCH, start, stop, GtidSet())
        followed = frozenset(schemas if follows else ())
        return SpoolSegment(self._source, segment, schemas, self._folder, 1, followed).run()

    def _merged(self, copy: Copy, manifest: Manifest) -> Copy:
        """The copy with the changes of a segment."""
        entry = manifest.tables[copy.schema.table]
        if entry is None:
            return copy
        changes = pq.read_table(self._folder / entry[0])
        deletes = pc.is_in(changes[change.KIND], DELETES)
        changes = changes.append_column(DELETED, deletes)
        rows = rows_after_changes(copy.rows.to_batches(), [changes], copy.schema.key, copy.schema)
        return Copy(copy.schema, pa.Table.from_batches(rows, table_schema(copy.schema)))


def _is_by_ddl(error: Exception) -> bool:
    """Whether a run reads the rows again."""
    if isinstance(error, UnsupportedEvent):
        return error.alterations is not None
    return isinstance(error, NotLiftable) or (isinstance(error, SchemaChanged) and error.by_ddl)


def _lifted(rows: pa.Table, lift: Lift, *, empties: bool) -> pa.Table:
    """The rows by their next definition."""
    rows, fills = rows.slice(0, 0) if empties else rows, constants(lift.after, lift.fills)

    def columns() -> Iterator[pa.ChunkedArray]:
        for field, origin in zip(table_schema(lift.after), lift.origins, strict=True):
            if origin is not None:
                yield rows[origin].cast(field.type)
            else:
                value = fills.get(field.name, pa.scalar(None, field.type))
                yield pa.chunked_array([pa.repeat(value, rows.num_rows)])

    return pa.Table.from_arrays(list(columns()), schema=table_schema(lift.after))


class CopiesInLake:
    """The copies of a pipeline."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def renew(self, names: Sequence[str]) -> dict[str, Exception]:
        """By a run. Its result says which tables stopped; without one, all of them stop if tables of both halves do."""
        if not names:
            return {}
        try:
            self._pipe.run(*names)
        except Exception as error:  # noqa: BLE001 - part of the report
            if isinstance(error, LakeIngestError) and error.result is not None:
                return {one.table.name: one.as_error() for one in error.result.stopped if one.table.name in names}
            stopped = dict.fromkeys(names, error)
        else:
            return {}
        if len(names) == 1:
            return stopped
        middle = len(names) // 2
        halves = self.renew(names[:middle]), self.renew(names[middle:])
        return stopped if all(len(one) > 1 for one in halves) else halves[0] | halves[1]

    def rows(self, name: str) -> pa.Table:
        """As PyIceberg or Spark reads them."""
        table, target = TableId(self._pipe.database, name), self._pipe.config.target
        if target.format == "iceberg":
            with catalog_of(target) as catalog:
                return catalog.load_table(str(table)).scan().to_arrow()
        rows = shown(self._pipe.spark, target, table)
        found = rows._collect_as_arrow()  # noqa: SLF001 - Spark 3.5 has no toArrow
        return (
            pa.Table.from_batches(found) if found else pa.table({one: pa.array([], pa.null()) for one in rows.columns})
        )


@contextmanager
def in_memory(
    server: LocalServer, folder: Local, chosen: Callable[[Tables, str], Tables] = with_options
) -> Iterator[Stage]:
    """A stage on an empty database, with copies in memory, whose files are in the folder.

    `chosen` adds the options of its tables.
    """
    database, source = "e2e_ddl", copier_of(server)
    source = source.model_copy(update={"tls": source.tls.model_copy(update={"mode": "disabled"})})  # it costs a third
    account = {"user": server.user, "password": SecretStr(server.password)}
    options = chosen(Tables(include=(f"{database}.*",)), database)
    source = source.with_hash_key(options.secret)
    copies = CopiesInMemory(source, database, lambda name: options.of(TableId(database, name)).choices, folder)
    with pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            cursor.execute(f"CREATE DATABASE {database}")
        with staged(source, source.model_copy(update=account), database, copies, options) as stage:
            yield stage
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {database}")


@contextmanager
def in_lake(pipe: Pipe, chosen: Callable[[Tables, str], Tables] = with_options) -> Iterator[Stage]:
    """A stage on the database of a pipeline, with its copies; `chosen` adds the options of its tables."""
    tables = chosen(pipe.config.tables, pipe.database)
    source = pipe.config.source.with_hash_key(tables.secret)
    pipe.config = pipe.config.model_copy(update={"tables": tables, "source": source})
    with staged(pipe.config.source, pipe.administrator, pipe.database, CopiesInLake(pipe), tables) as stage:
        yield stage
