"""`tables.startup: adopt` on tables with a column of every type, as tools that do not run here write them.

By each tool's documented types: AWS DMS, Airbyte, Debezium Server Iceberg and OLake. Which columns stay as they are,
which are refused by their type, and which get some values anew; the page has the same table, also of the tools in
`test_tables_of_tools`.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeingest.commands.check import check
from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from tests.e2e.other_tools import adopting, namespace, snapshots
from tests.e2e.pipe import Pipe
from tests.e2e.test_tables_of_tools import COLUMNS, DLT, FLINK, INGESTR, SEATUNNEL, SPARK, Tool, values
from tests.e2e.test_taken_over import assert_same
from tests.lake.shown import catalog_of

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "leave-another-tool.md"
ROWS = 12
Made = tuple[pa.DataType, Callable[[Any], Any]]  # the type that a tool gives a column, and how it writes a value
# Beside those of COLUMNS
MORE = {
    "digits": ("DECIMAL(50,3)", "12345678901234567890123456789012345678901.125 + {n}"),
    "shape": ("POINT", "ST_GeomFromText('POINT({n} 1)')"),
}


def text(value: Any) -> str:
    """As it is, or base 64 of bytes."""
    if isinstance(value, timedelta):
        return f"{clock(value):%H:%M:%S}"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def iso(value: Any) -> str:
    """A date or time, as Debezium writes it with isostring."""
    if isinstance(value, timedelta):
        return f"{clock(value):%H:%M:%S}Z"
    return f"{value.isoformat()}Z"


def moment(value: Any) -> datetime:
    """An instant."""
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return at.replace(tzinfo=UTC)


def clock(value: timedelta) -> time:
    """A time of a day."""
    return (datetime(2026, 1, 1) + value).time()


def of_bits(value: bytes) -> int:
    """The number that bits are."""
    return int.from_bytes(value, "big")


def wrapped(value: int) -> int:
    """An unsigned number in 64 bits that have a sign."""
    return value - 2**64 if value >= 2**63 else value


def reversed_bits(value: bytes) -> bytes:
    """Bits, the lowest byte first."""
    return value[::-1]


def well_known(value: bytes) -> bytes:
    """The WKB of a shape, without its SRID."""
    return value[4:]


def struct_of(value: bytes) -> dict[str, Any]:
    """A shape as Debezium has it."""
    return {"wkb": value[4:], "srid": None}


def same(value: Any) -> Any:
    """The value of the source."""
    return value


def flag(value: Any) -> bool:
    """A number or a bit as a flag."""
    return bool(of_bits(value) if isinstance(value, bytes) else value)


INT, LONG, DOUBLE, TEXT = (pa.int32(), same), (pa.int64(), same), (pa.float64(), float), (pa.string(), text)
FLAG, BYTES = (pa.bool_(), flag), (pa.binary(), same)
INSTANT = (pa.timestamp("us", "UTC"), moment)
# What all of these tools agree on
USUAL: Mapping[str, Made] = {
    **dict.fromkeys(("id", "tiny", "flag", "small", "medium", "whole", "year", "CustomerNo"), INT),
    **dict.fromkeys(("counted", "big"), LONG),
    "exact": DOUBLE,
    "ratio": (pa.float32(), float),
    **dict.fromkeys(("name", "note", "kind", "tags", "doc"), TEXT),
    **dict.fromkeys(("code", "raw", "pic"), BYTES),
}


@dataclass(frozen=True)
class Layout:
    """A tool, and what it makes of the columns, by its documents.

    `made`: the columns in which it differs from USUAL. `refused`: the types of columns that have no place in the copy.
    `wrong`: columns with the type of the copy, in which some values differ. `options`: of the tables. `own`: columns
    that only the tool has; `drop` has patterns of them.
    """

    name: str
    made: Mapping[str, Made]
    refused: Mapping[str, str]
    wrong: tuple[str, ...]
    own: tuple[str, ...]
    drop: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


DMS = Layout(
    "AWS DMS",
    {
        "huge": (pa.decimal128(20, 0), same),
        "price": (pa.decimal128(12, 2), same),
        "digits": TEXT,
        "ratio": DOUBLE,
        "bit": FLAG,
        "bits": BYTES,
        "day": (pa.date32(), same),
        "at": INSTANT,
        "seen": INSTANT,
        "clock": TEXT,
        "shape": (pa.binary(), well_known),
    },
    refused={"ratio": "double", "at": "timestamptz"},
    wrong=(),
    own=("Op", "dms_time"),
    drop=("Op", "dms_time"),
)
INTEGERS = ("id", "tiny", "small", "medium", "whole", "year", "CustomerNo")
AIRBYTE = Layout(
    "Airbyte",
    {
        **dict.fromkeys(INTEGERS, LONG),
        **dict.fromkeys(("flag", "bit"), FLAG),
        **dict.fromkeys(("huge", "price", "digits", "ratio"), DOUBLE),
        **dict.fromkeys(("bits", "code", "raw", "pic", "shape"), TEXT),
        "day": (pa.date32(), same),
        "at": (pa.timestamp("us"), same),
        "seen": INSTANT,
        "clock": (pa.time64("us"), clock),
    },
    refused={
        **dict.fromkeys(("huge", "price", "digits", "ratio"), "double"),
        **dict.fromkeys(("bits", "code", "raw", "pic", "shape"), "string"),
        "clock": "time",
    },
    wrong=(),
    own=("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"),
    drop=("_airbyte_*",),
    options={"types": {"tinyint1": "boolean"}, "columns": {"cast": dict.fromkeys(INTEGERS, "bigint")}},
)
SHAPE = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
DEBEZIUM = Layout(
    "Debezium Server",
    {
        "huge": (pa.int64(), wrapped),
        **dict.fromkeys(("price", "digits"), DOUBLE),
        "bit": FLAG,
        "bits": (pa.binary(), reversed_bits),
        **dict.fromkeys(("day", "at", "seen", "clock"), (pa.string(), iso)),
        "shape": (SHAPE, struct_of),
    },
    refused={
        "huge": "long",
        **dict.fromkeys(("price", "digits"), "double"),
        **dict.fromkeys(("day", "at", "seen"), "string"),
        "shape": "struct",
    },
    wrong=("bits", "clock"),
    own=("__op", "__table", "__source_ts_ms", "__db", "__deleted"),
    drop=("__*",),
)
OLAKE = Layout(
    "OLake",
    {
        "huge": (pa.int64(), wrapped),
        **dict.fromkeys(("price", "digits"), DOUBLE),
        **dict.fromkeys(("bit", "bits"), (pa.int32(), of_bits)),
        "year": LONG,
        **dict.fromkeys(("code", "raw", "pic", "shape"), TEXT),
        **dict.fromkeys(("day", "at", "seen"), INSTANT),
        "clock": TEXT,
    },
    refused={
        "huge": "long",
        **dict.fromkeys(("price", "digits"), "double"),
        **dict.fromkeys(("bit", "bits"), "int"),
        **dict.fromkeys(("code", "raw", "pic", "shape"), "string"),
        **dict.fromkeys(("day", "at"), "timestamptz"),
    },
    wrong=(),
    own=("_olake_id", "_op_type", "_cdc_timestamp", "_olake_timestamp"),
    drop=("_olake_*", "_op_type", "_cdc_timestamp"),
    options={"columns": {"cast": {"year": "bigint"}}},
)
LAYOUTS = (DMS, AIRBYTE, DEBEZIUM, OLAKE)


def created(pipe: Pipe) -> list[dict[str, Any]]:
    """The source's table of all types, and its rows."""
    types = {name: one[0] for name, one in COLUMNS.items()} | {name: one[0] for name, one in MORE.items()}
    columns = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
    more = [", ".join(one[1].format(n=number) for one in MORE.values()) for number in range(ROWS)]
    rows = ", ".join(f"({values(list(COLUMNS), number)}, {more[number]})" for number in range(ROWS))
    pipe.sql("SET time_zone = '+00:00'", f"CREATE TABLE every ({columns})")
    pipe.sql(f"INSERT INTO every VALUES {rows}", "UPDATE every SET ratio = id / 4")  # which has an exact text
    with pipe.connection.cursor() as cursor:
        cursor.execute("SELECT * FROM every")
        return [dict(zip(types, row, strict=True)) for row in cursor.fetchall()]


def written_by(layout: Layout, pipe: Pipe, rows: list[dict[str, Any]]) -> None:
    """The table in the lake as the tool has it."""
    made = {**USUAL, **layout.made}
    columns = {
        name: pa.array([None if row[name] is None else made[name][1](row[name]) for row in rows], made[name][0])
        for name in rows[0]
    }
    table = pa.table({**columns, **{name: pa.array(["x"] * len(rows)) for name in layout.own}})
    namespace(pipe)
    with catalog_of(pipe.config.target) as catalog:
        catalog.create_table(f"{pipe.database}.every", table.schema).append(table)


def changed_columns(pipe: Pipe, version: int) -> set[str]:
    """The columns with the name and the type that they had in this version, in which the copy has other values."""
    with catalog_of(pipe.config.target) as catalog:
        table = catalog.load_table(f"{pipe.database}.every")
        now, then = (table.scan(snapshot_id=at).to_arrow().sort_by("id") for at in (None, version))
    both = [name for name in now.column_names if name in then.column_names]
    return {name for name in both if now[name].to_pylist() != then[name].to_pylist()}


def refused_types(pipe: Pipe) -> dict[str, str]:
    """The types that `check` names, by column."""
    [finding] = [one.finding for one in check(pipe.config).problems if one.finding]
    return dict(re.findall(r"(?:: |; )(\w+) is (\w+)[^;]*, and the copy's", finding))


@pytest.mark.e2e
@pytest.mark.mysql
@pytest.mark.spark
@pytest.mark.local("the tables are written into a folder of this machine")
@pytest.mark.long("whole runs")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_column_stays_or_is_refused_or_gets_values_anew(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], layout: Layout
) -> None:
    """As the page says."""
    pipe = pipe_on(server_of(MYSQL), chunk_rows=5)
    written_by(layout, pipe, created(pipe))
    adopting(pipe, stopped=layout.name, drop=layout.drop, **layout.options)
    assert refused_types(pipe) == layout.refused
    adopting(pipe, stopped=layout.name, drop=[*layout.drop, *layout.refused], **layout.options)
    version = snapshots(pipe, "every")[-1].snapshot_id
    pipe.run()
    assert_same(pipe, "every")
    assert changed_columns(pipe, version) - {*layout.refused, *layout.own} == set(layout.wrong)
    pipe.sql("UPDATE every SET name = 'later' WHERE id = 3", "DELETE FROM every WHERE id = 4")
    pipe.run()
    assert_same(pipe, "every")


def cell(tool: Layout | Tool, column: str) -> str:
    """What the page says of a column of a tool."""
    options: Mapping[str, Any] = tool.options
    refused = tool.refused if isinstance(tool, Layout) else tool.differing
    if column in MORE and isinstance(tool, Tool):
        return "?"
    if column in tool.refuses:
        return "no copy"
    if column in refused:
        return f"`{refused[column]}`"
    if column in tool.wrong:
        return "anew"
    return "cast" if column in options.get("columns", {}).get("cast", {}) else "="


def test_the_page_has_the_same_table() -> None:
    """A line for each type, and a cell for each tool."""
    tools: list[Layout | Tool] = [SPARK, FLINK, SEATUNNEL, DLT, INGESTR, *LAYOUTS]
    types = {name: one[0] for name, one in COLUMNS.items()} | {name: one[0] for name, one in MORE.items()}
    lines = ["| | " + " | ".join(tool.name.removesuffix(", whole rows") for tool in tools) + " |", "|---" * 10 + "|"]
    for name, type_ in types.items():
        shown = type_.removesuffix(" PRIMARY KEY").removesuffix(" NULL")
        line = f"| `{shown}` | " + " | ".join(cell(tool, name) for tool in tools) + " |"
        if line not in lines:
            lines.append(line)
    assert "\n".join(lines) in PAGE.read_text(), "\n".join(lines)
