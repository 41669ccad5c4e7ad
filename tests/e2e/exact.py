"""Source and copy compared past our code: PyMySQL's bytes of the one, Arrow as PyIceberg or Spark reads the other."""

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pymysql
from pyiceberg.catalog import Catalog

from lakeingest.core.schema import GEOMETRIES, SRID_BYTES, TableId
from lakeingest.errors import PreflightFailed, SchemaChanged, UnsupportedTable, UnsupportedValue
from tests.e2e.pipe import Pipe
from tests.shown import catalog_of, shown

Row = tuple[object, ...]
SHOWN = 3  # rows of each side in a difference


class Comparer:
    """Compares tables of a pipeline, by names; nobody writes meanwhile."""

    def __init__(self, pipe: Pipe, source: pymysql.Connection, catalog: Catalog | None) -> None:
        self._pipe, self._source, self._catalog = pipe, source, catalog

    def difference(self, name: str) -> str:
        """What differs, in words; '' if the copy has the source's rows, and NULL in columns that the source lacks."""
        copy = self._copy(name)
        types = self._types(name)
        if missing := [column for column in types if column not in copy.column_names]:
            return f"the copy has no columns {', '.join(missing)}"
        if full := [one for one in copy.column_names if one not in types and copy[one].null_count < copy.num_rows]:
            return f"columns that the source has dropped are not NULL: {', '.join(full)}"
        wanted = Counter(map(repr, self._rows(name, types, copy.schema)))
        columns = [[_plain(value) for value in copy[column].to_pylist()] for column in types]
        found = Counter(map(repr, zip(*columns, strict=True)))
        if wanted == found:
            return ""
        only = [list((one - other).elements())[:SHOWN] for one, other in ((wanted, found), (found, wanted))]
        return f"{', '.join(types)}: source {', '.join(only[0])}; copy {', '.join(only[1])}"

    def may_stop(self, name: str, error: Exception) -> bool:
        """Whether the copy cannot have what the source has: a zero or partial date without the option that allows them.

        Or a key of approximate numbers or members; members of bytes; or members that the server cannot name (it shows
        a question mark for what utf8mb3 lacks) in a binlog without metadata.
        """
        listed = "data_type IN ('enum', 'set')"
        if isinstance(error, UnsupportedValue):
            types = self._types(name).items()
            dates = [one for one, type_ in types if type_ in {"date", "datetime", "timestamp"}]
            zero = [f"MONTH(`{one}`) = 0 OR DAYOFMONTH(`{one}`) = 0" for one in dates]
            return self._is_any(f"SELECT 1 FROM `{self._pipe.database}`.`{name}` WHERE {' OR '.join(zero) or 'FALSE'}")
        if isinstance(error, UnsupportedTable | PreflightFailed):
            of_key = f"column_key = 'PRI' AND ({listed} OR data_type IN ('float', 'double'))"
            of_bytes = f"{listed} AND COALESCE(character_set_name, 'binary') IN ('', 'binary')"
            return self._is_any(self._asked(name, f"({of_key}) OR ({of_bytes})"))
        is_minimal = self._is_any("SELECT 1 FROM DUAL WHERE @@binlog_row_metadata <> 'FULL'")
        is_unnamed = self._is_any(self._asked(name, f"{listed} AND column_type LIKE '%?%'"))
        return isinstance(error, SchemaChanged) and is_minimal and is_unnamed

    def _asked(self, name: str, condition: str) -> str:
        of_table = f"table_schema = '{self._pipe.database}' AND table_name = '{name}'"
        return f"SELECT column_name FROM information_schema.columns WHERE {of_table} AND ({condition})"

    def _is_any(self, query: str) -> bool:
        with self._source.cursor() as cursor:
            cursor.execute(query)
            return bool(cursor.fetchall())

    def _types(self, name: str) -> dict[str, str]:
        """The source's columns and their types, in its order."""
        with self._source.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (self._pipe.database, name),
            )
            return {bytes(column).decode(): bytes(type_).decode().lower() for column, type_ in cursor.fetchall()}

    def _rows(self, name: str, types: dict[str, str], schema: pa.Schema) -> Iterator[Row]:
        """The source's rows, each value as Python has those of the copy's type."""
        selected = ", ".join(
            f"CAST(`{column}` AS DOUBLE)" if type_ in {"float", "double"} else f"`{column}`"
            for column, type_ in types.items()
        )
        readers = [_reader(type_, schema.field(column).type) for column, type_ in types.items()]
        with self._source.cursor() as cursor:
            cursor.execute(f"SELECT {selected} FROM `{self._pipe.database}`.`{name}`")
            for row in cursor.fetchall():
                yield tuple(None if one is None else read(one) for read, one in zip(readers, row, strict=True))

    def _copy(self, name: str) -> pa.Table:
        table = TableId(self._pipe.database, name)
        if self._catalog is not None:
            return self._catalog.load_table(str(table)).scan().to_arrow()
        rows = shown(self._pipe.spark, self._pipe.config.target, table)
        found = rows._collect_as_arrow()  # noqa: SLF001 - Spark 3.5 has no toArrow
        return (
            pa.Table.from_batches(found) if found else pa.table({one: pa.array([], pa.null()) for one in rows.columns})
        )


@contextmanager
def comparer(pipe: Pipe) -> Iterator[Comparer]:
    """Its connection reads bytes, in UTC, and truncates nothing."""
    settings, target = pipe.config.source, pipe.config.target
    source = pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password.get_secret_value() if settings.password else "",
        charset="utf8mb4",
        use_unicode=False,
        conv={},
        autocommit=True,
        init_command="SET time_zone = '+00:00', sql_mode = ''",
    )
    with source, catalog_of(target) if target.format == "iceberg" else nullcontext() as catalog:
        yield Comparer(pipe, source, catalog)


def _reader(type_: str, copied: pa.DataType) -> Callable[[bytes], object]:
    """What makes of the server's text of a value what `_plain` makes of Arrow's."""
    if type_ in GEOMETRIES:
        return lambda raw: raw[SRID_BYTES:]
    if pa.types.is_binary(copied) or pa.types.is_large_binary(copied):
        return bytes
    if pa.types.is_boolean(copied):
        return lambda raw: raw != b"\0"
    if pa.types.is_float32(copied) or pa.types.is_float64(copied):
        return lambda raw: _plain(float(raw))
    if pa.types.is_integer(copied):
        return int
    if pa.types.is_decimal(copied):
        return lambda raw: _plain(Decimal(raw.decode()))
    if pa.types.is_date(copied):
        return lambda raw: _plain(date.fromisoformat(raw.decode()))
    if pa.types.is_timestamp(copied):
        return lambda raw: _plain(datetime.fromisoformat(raw.decode()))
    if pa.types.is_list(copied) or pa.types.is_large_list(copied):
        return lambda raw: list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return bytes.decode


def _plain(value: object) -> object:
    """A value of Arrow, so that equal ones have one text; the zone of an instant is UTC."""
    match value:
        case float():
            return struct.pack("d", value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat()
        case date():
            return value.isoformat()
    return value
