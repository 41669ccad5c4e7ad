"""Source and copy compared past our code: PyMySQL's bytes of the one, Arrow of the other."""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.config.tables import Columns, Tables
from lakeingest.core.tables.schema import GEOMETRIES, SRID_BYTES, TableId
from lakeingest.errors import PreflightFailed, SchemaChanged, UnsupportedTable, UnsupportedValue
from tests.e2e.ddl_grammar import KID
from tests.e2e.shaped_values import SUITABLE, UNFIT, role_of, shaped_reader

Row = tuple[object, ...]
# A zero or partial date of a change row, in the words of an error
ZERO_IN_BINLOG = re.compile(r" at [\w.-]+:\d+: column .* holds '\d{4}-(?:00-\d\d|\d\d-00)")
SHOWN = 3  # rows of each side in a difference
# Whatever a server imposes on sessions, a result has all rows
ALL_ROWS = f"sql_select_limit = {2**64 - 1}, max_join_size = {2**64 - 1}, sql_big_selects = 1"


class Comparer:
    """Compares tables of a database, by names; nobody writes meanwhile."""

    def __init__(self, source: pymysql.Connection, database: str, options: Tables) -> None:
        self._source, self._database, self._options = source, database, options

    def difference(self, name: str, copy: pa.Table) -> str:
        """What differs, in words; '' if the copy has the source's rows, and NULL in columns that the source lacks.

        Columns that are left out count as columns that the source lacks.
        """
        types = self._types(name)
        in_copy = {column: self._columns(name).rename.get(column, column) for column in types}
        if missing := [column for column in in_copy.values() if column not in copy.column_names]:
            return f"the copy has no columns {', '.join(missing)}"
        extra = [one for one in copy.column_names if one not in in_copy.values()]
        if full := [one for one in extra if copy[one].null_count < copy.num_rows]:
            return f"columns that the source has dropped are not NULL: {', '.join(full)}"
        in_copy_types = {column: copy.schema.field(one).type for column, one in in_copy.items()}
        wanted = Counter(map(repr, self._rows(name, types, in_copy_types)))
        columns = [[_plain(value) for value in copy[column].to_pylist()] for column in in_copy.values()]
        found = Counter(map(repr, zip(*columns, strict=True)))
        if wanted == found:
            return ""
        only = [list((one - other).elements())[:SHOWN] for one, other in ((wanted, found), (found, wanted))]
        return f"{', '.join(types)}: source {', '.join(only[0])}; copy {', '.join(only[1])}"

    def may_stop(self, name: str, error: Exception) -> bool:
        """Whether the copy cannot have what the source has: a zero or partial date without the option that allows them.

        That may be in the binlog alone, and gone since. Or a geometry without any byte, which MariaDB gives to older
        rows in a new column that is NOT NULL; bytes that the charset of a text or a member lacks; a key of approximate
        numbers or members; members of bytes; or members that the server cannot name (it shows a question mark for what
        utf8mb3 lacks) in a binlog without metadata, of which only the message is known where the column is gone.
        """
        listed = "data_type IN ('enum', 'set')"
        if isinstance(error, UnsupportedValue):
            types = self._types(name).items()
            dates = [one for one, type_ in types if type_ in {"date", "datetime", "timestamp"}]
            zero = [f"MONTH(`{one}`) = 0 OR DAYOFMONTH(`{one}`) = 0" for one in dates]
            empty = [f"LENGTH(`{one}`) = 0" for one, type_ in types if type_ in GEOMETRIES]
            in_utf8mb3 = self._found(self._asked(name, f"{listed} AND character_set_name IN ('utf8', 'utf8mb3')"))
            beyond = [f"HEX(`{bytes(one).decode()}`) REGEXP '^(..)*F[0-7]'" for one, *_ in in_utf8mb3]
            either = " OR ".join([*zero, *empty, *beyond, *self._lacking(name)]) or "FALSE"
            has_any = bool(self._found(f"SELECT 1 FROM `{self._database}`.`{name}` WHERE {either}"))
            return has_any or ZERO_IN_BINLOG.search(str(error)) is not None
        if type(error).__name__ == "PartitionsDiffer":  # its column may be another one, or of another type
            options = self._options.of(TableId(self._database, name))
            return bool(options.partition_by or options.sort_by)
        if isinstance(error, SchemaChanged) and "may be that column" in str(error):
            return self._lacks_chosen(name)
        if isinstance(error, UnsupportedTable | PreflightFailed):
            if any(words in str(error) for words in UNFIT):
                return self._is_unfit(name)
            if "leaves out" in str(error):
                return self._lacks_key(name.removesuffix(KID))
            of_key = f"column_key = 'PRI' AND ({listed} OR data_type IN ('float', 'double'))"
            of_bytes = f"{listed} AND COALESCE(character_set_name, 'binary') IN ('', 'binary')"
            return bool(self._found(self._asked(name, f"({of_key}) OR ({of_bytes})")))
        is_minimal = self._found("SELECT 1 FROM DUAL WHERE @@binlog_row_metadata <> 'FULL'")
        return isinstance(error, SchemaChanged) and bool(is_minimal) and "does not name the members" in str(error)

    def _lacks_key(self, name: str) -> bool:
        """Whether a column of the key is left out or hidden."""
        types = [one for one in self._types(name) if role_of(self._columns(name), one) not in {"hash", "mask"}]
        return any(
            bytes(column).decode() not in types for column, *_ in self._found(self._asked(name, "column_key = 'PRI'"))
        )

    def _is_unfit(self, name: str) -> bool:
        """Whether a column has a type that its role cannot have, is cast and of the key, or is chosen by and gone."""
        types, columns = self._types(name), self._columns(name)
        key = {bytes(one).decode() for one, *_ in self._found(self._asked(name, "column_key = 'PRI'"))}
        is_wrong = any(
            type_ not in SUITABLE.get(role_of(columns, one), {type_}) or (one in key and one in columns.cast)
            for one, type_ in types.items()
        )
        condition = self._options.of(TableId(self._database, name)).rows
        return is_wrong or bool(condition and "c1" not in types)

    def _lacks_chosen(self, name: str) -> bool:
        """Whether the source lacks a column that is named, as after a rename."""
        chosen, types = self._columns(name), self._types(name)
        named = {*chosen.hash, *chosen.mask, *chosen.rename, *chosen.exclude}
        return not named <= types.keys()

    def _lacking(self, name: str) -> Iterator[str]:
        """For each column of text, whether a value is another one after the server has read it as characters."""
        of_table = f"table_schema = '{self._database}' AND table_name = '{name}'"
        charsets = f"SELECT column_name, character_set_name FROM information_schema.columns WHERE {of_table}"
        for found in self._found(f"{charsets} AND character_set_name IS NOT NULL"):
            column, charset = (bytes(one).decode() for one in found)
            read = f"CONVERT(CONVERT(`{column}` USING utf8mb4) USING {charset})"
            yield f"NOT (HEX(`{column}`) <=> HEX({read}))"

    def _asked(self, name: str, condition: str) -> str:
        of_table = f"table_schema = '{self._database}' AND table_name = '{name}'"
        return f"SELECT column_name FROM information_schema.columns WHERE {of_table} AND ({condition})"

    def _found(self, query: str) -> Sequence[tuple[bytes, ...]]:
        with self._source.cursor() as cursor:
            cursor.execute(query)
            found: Sequence[tuple[bytes, ...]] = cursor.fetchall()
        return found

    def _types(self, name: str) -> dict[str, str]:
        """The source's columns that are copied, and their types, in its order."""
        leaves_out = self._options.of(TableId(self._database, name)).choices.columns.leaves_out
        with self._source.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (self._database, name),
            )
            types = {bytes(column).decode(): bytes(type_).decode().lower() for column, type_ in cursor.fetchall()}
        return {column: type_ for column, type_ in types.items() if not leaves_out(column)}

    def _columns(self, name: str) -> Columns:
        """How the copy has the columns of a table."""
        return self._options.of(TableId(self._database, name)).columns

    def _rows(self, name: str, types: dict[str, str], copied: dict[str, pa.DataType]) -> Iterator[Row]:
        """The source's rows that are copied, each value as Python has those of the copy; `copied`: its types."""
        selected = ", ".join(
            f"CAST(`{column}` AS DOUBLE)" if type_ in {"float", "double"} else f"`{column}`"
            for column, type_ in types.items()
        )
        roles = {column: role_of(self._columns(name), column) for column in types}
        readers = [
            shaped_reader(role, types[column]) if role else _reader(types[column], copied[column])
            for column, role in roles.items()
        ]
        condition = self._options.of(TableId(self._database, name)).rows or "TRUE"
        with self._source.cursor() as cursor:
            cursor.execute(f"SELECT {selected} FROM `{self._database}`.`{name}` WHERE {condition}")
            for row in cursor.fetchall():
                yield tuple(None if one is None else read(one) for read, one in zip(readers, row, strict=True))


@contextmanager
def comparer(source: Source, database: str, options: Tables) -> Iterator[Comparer]:
    """Its connection reads bytes, in UTC, and truncates nothing."""
    connection = pymysql.connect(
        host=source.host,
        port=source.port,
        user=source.user,
        password=source.password.get_secret_value() if source.password else "",
        charset="utf8mb4",
        use_unicode=False,
        conv={},
        autocommit=True,
        init_command=f"SET time_zone = '+00:00', sql_mode = '', {ALL_ROWS}",
    )
    with connection:
        yield Comparer(connection, database, options)


def _reader(type_: str, copied: pa.DataType) -> Callable[[bytes], object]:
    """What makes of the server's text of a value what `_plain` makes of Arrow's."""
    if type_ in GEOMETRIES:
        return lambda raw: raw[SRID_BYTES:]
    if pa.types.is_binary(copied) or pa.types.is_large_binary(copied):
        return bytes
    if pa.types.is_boolean(copied):
        return lambda raw: raw not in {b"\0", b"0"}  # of a BIT(1), or of a TINYINT(1)
    if pa.types.is_float32(copied) or pa.types.is_float64(copied):
        return lambda raw: _plain(float(raw))
    if pa.types.is_integer(copied):
        return int
    if type_ == "decimal" or pa.types.is_decimal(copied):  # its text may have the zeros of ZEROFILL
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
