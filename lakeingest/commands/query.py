"""Query: a question in SQL about the rows of copies that readers see. Neither source nor Spark is needed.

DuckDB answers the question, on a database in memory that has nothing but these rows. Files, networks, extensions and
settings are closed to the question, so it can read nothing else, and change nothing.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from lakeingest.commands.past import ShownRows, rows_shown
from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.binlog.position import Place
from lakeingest.core.printable import printable
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, OperatorNeeded, UsageError
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copied

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package
    from duckdb import DuckDBPyConnection

EXTRA = "pip install 'lakeingest[query]'"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",  # rows never go to a disk
    "python_enable_replacements": "false",  # no variable of this program is a table
}


@dataclass(frozen=True, slots=True, repr=False)
class QueryResult(Report):
    """The answer to a question. `positions`: by table, the place in the binlog as of which its rows were read."""

    rows: pa.Table
    positions: Mapping[TableId, str]

    @property
    def headers(self) -> Sequence[str]:
        """The columns of the answer."""
        return tuple(self.rows.column_names)

    def cells(self) -> Iterator[Sequence[object]]:
        """The rows of the answer. All values but booleans are texts, so a year has no comma, and no digit is lost."""
        for row in self._values():
            yield [_shown(value) for value in row]

    @property
    def notes(self) -> Sequence[str]:
        """The number of rows, and the position of each table."""
        places = ((table, Place.parse(position)) for table, position in self.positions.items())
        tables = (f"{table} as of byte {place.pos} of binlog file {place.file}" for table, place in places)
        return [f"{self.rows.num_rows:,} rows; {', '.join(tables) or 'no table was read'}"]

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a pandas frame. Columns keep their Arrow types, so values stay exact even beside NULL."""
        import pandas as pd

        frame: pd.DataFrame = self.rows.to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def to_json(self) -> dict[str, Any]:
        """The answer as a JSON document. Two columns may have one name, so each row is a list."""
        return {
            "columns": list(self.headers),
            "rows": [[_plain(value) for value in row] for row in self._values()],
            "positions": {str(table): position for table, position in self.positions.items()},
        }

    def write_csv(self, out: IO[str], *, printed: bool = False) -> None:
        """Write the answer as CSV with a line of headers. NULL is empty.

        `printed`: characters that are not printable become escapes, because the text is for a terminal.
        """
        writer = csv.writer(out, lineterminator="\n")
        for row in (self.headers, *self._values()):
            texts = ["" if value is None else _text(value) for value in row]
            writer.writerow(map(printable, texts) if printed else texts)

    def _values(self) -> Iterator[tuple[Any, ...]]:
        """The values of each row, without names of columns, because two columns may have one name."""
        for batch in self.rows.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class _Source:
    """The rows of a copy, as DuckDB reads them: file by file, once for each place where a question names the table."""

    def __init__(self, rows: ShownRows) -> None:
        self._rows = rows
        self.error: LakeIngestError | None = None  # why the rows could not be read

    def __arrow_c_schema__(self) -> object:
        return self._rows.fields.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._rows.fields, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. An error is kept in `error`, because DuckDB raises an error of its own in its place."""
        try:
            yield from self._rows.batches()
        except LakeIngestError as error:
            self.error = error
            raise


def query(config: Config, sql: str) -> QueryResult:
    """Answer a question of one SELECT. Tables are named `database.table`, quoted with `"` if necessary.

    The rows of each table are those of its published position. They are read from its files; only what the question
    sorts, groups or joins, and the answer, are held in memory.

    Raises:
        UsageError: the question has a mistake, is no single SELECT, or names a table that has no copy.
        OperatorNeeded: DuckDB is not installed, or the memory is too small.
        StateUnreadable: the files of a copy, or its definition, are gone.

    """
    try:
        import duckdb
    except ImportError as error:
        raise OperatorNeeded(f"`query` needs DuckDB: {error}: {EXTRA}") from error

    shown = dict[TableId, ShownRows]()
    sources = list[_Source]()
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for table in _tables_of(config, connection, sql):
                shown[table] = rows_shown(config, table)
                sources.append(_Source(shown[table]))
                _add(connection, table, f"lakeingest_{len(sources)}", sources[-1])
            connection.execute("SET lock_configuration = true")  # the question cannot open what _CLOSED closes
            answer = connection.sql(sql).to_arrow_table()
        except duckdb.OutOfMemoryException as error:
            raise OperatorNeeded(f"the question needs more memory than there is: {_line(error)}") from error
        except duckdb.Error as error:
            for source in sources:
                if source.error is not None:
                    raise source.error from error
            raise UsageError(f"{_line(error)}; tables are named database.table") from error
    return QueryResult(answer, {table: str(rows.version.place) for table, rows in shown.items()})


def _tables_of(config: Config, connection: "DuckDBPyConnection", sql: str) -> list[TableId]:
    """The tables with copies that a question names. Raises UsageError if the question is no single SELECT."""
    [[text]] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed.get("error") or len(parsed.get("statements", ())) != 1:
        reason = parsed.get("error_message")
        raise UsageError(f"a question is a single SELECT{f': {reason}' if reason else ''}")
    named = dict.fromkeys(_references(parsed))
    known = config.tables.select(copied(open_target(config), config.target)) if named else ()
    found = [table for table in known if (table.database, table.name) in named]
    folded = [(table.database.lower(), table.name.lower()) for table in found]
    if len(set(folded)) < len(folded):
        raise UsageError("DuckDB does not tell names apart that differ only in case: ask about one of these tables")
    return found


def _references(parsed: Any) -> Iterator[tuple[str, str]]:
    """The schema and the name of each table in a parsed question, also of those in subqueries."""
    if isinstance(parsed, dict):
        # tables are named database.table; a name without a schema can be that of a WITH clause
        if parsed.get("type") == "BASE_TABLE" and parsed.get("schema_name"):
            yield parsed["schema_name"], parsed["table_name"]
        parsed = list(parsed.values())
    if isinstance(parsed, list):
        for part in parsed:
            yield from _references(part)


def _add(connection: "DuckDBPyConnection", table: TableId, name: str, source: _Source) -> None:
    """Let a question find the rows of a table by the table's name. `name`: an unused name, for the rows themselves."""
    connection.register(name, source)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.database)}")
    connection.execute(f"CREATE VIEW {_quoted(table.database)}.{_quoted(table.name)} AS SELECT * FROM {name}")


def _quoted(name: str) -> str:
    """The name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _line(error: Exception) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split())


def _plain(value: Any) -> Any:
    """A value as JSON and CSV have it. Decimals, times and infinite numbers are texts; bytes are hexadecimal."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _text(value: Any) -> str:
    """The text of a value that is not NULL. Booleans are `true` and `false`, as in SQL."""
    return str(value).lower() if isinstance(value, bool) else str(_plain(value))


def _shown(value: Any) -> object:
    """The value as a cell of a report has it: a text, except for NULL and booleans."""
    return value if value is None or isinstance(value, bool) else _text(value)
