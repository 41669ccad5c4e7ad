"""Programs that know nothing of lakeingest, and replay a changelog by the rules of its format."""

import base64
import datetime as dt
import json
import struct
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

Rows = dict[tuple[Any, ...], dict[str, Any]]


def flink(lines: Iterable[str], key: tuple[str, ...], rows: Rows | None = None, *, strict: bool = True) -> Rows:
    """Rules of Flink's changelog-json: +I and +U put a row, -U and -D take it away. DDL gives all rows other columns.

    `strict`: a row that is put was not there, and one that is taken away was there, just so. `key` is that of the rows
    that are there.
    """
    rows = {} if rows is None else rows
    for line in lines:
        doc = json.loads(line, parse_float=Decimal)
        row, op = doc["data"], doc["op"]
        if op == "TRUNCATE":
            rows.clear()
        elif op == "DDL":
            key = tuple(doc["key"])
            _lift(
                rows,
                key,
                {one["name"]: one["was"] for one in doc["columns"]},
                {one["name"]: one["fill"] for one in doc["columns"] if one["was"] is None},
            )
        elif op in {"+I", "+U"}:
            name = tuple(row[column] for column in key)
            assert not strict or name not in rows, line
            rows[name] = row
        else:
            assert op in {"-U", "-D"}
            name = tuple(row[column] for column in key)
            assert not strict or rows[name] == row, line
            rows.pop(name, None)
    return rows


def debezium(lines: Iterable[str], key: tuple[str, ...], rows: Rows | None = None, *, strict: bool = True) -> Rows:
    """Rules of a sink for Debezium's events: r, c and u put `after`, d takes `before` away; values by the schema.

    t takes all rows away; a schema change event gives them other columns. `strict`: a row that is taken away was there.
    """
    rows = {} if rows is None else rows
    for line in lines:
        doc = json.loads(line)
        envelope = {one["field"]: one for one in doc["schema"]["fields"]}
        payload = doc["payload"]
        assert set(payload) == set(envelope)
        assert set(payload["source"]) == {one["field"] for one in envelope["source"]["fields"]}
        if "tableChanges" in payload:
            [changed] = payload["tableChanges"]
            table, fill = changed["table"], _struct(envelope["fill"], payload["fill"])
            key = tuple(table["primaryKeyColumnNames"])
            _lift(rows, key, {one["name"]: one["previousName"] for one in table["columns"]}, fill or {})
            continue
        before, after = (_struct(envelope[part], payload[part]) for part in ("before", "after"))
        if payload["op"] == "t":
            assert before is after is None
            rows.clear()
        elif payload["op"] == "d":
            assert before is not None
            assert after is None
            gone = rows.pop(tuple(before[column] for column in key), None)
            assert not strict or gone is not None, line
        else:
            assert after is not None
            assert (before is not None) == (payload["op"] == "u")
            rows[tuple(after[column] for column in key)] = after
    return rows


def key_after(lines: Iterable[str], key: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the key's columns after these lines of changelog-json."""
    for line in lines:
        doc = json.loads(line)
        key = tuple(doc["key"]) if doc["op"] == "DDL" else key
    return key


def _lift(rows: Rows, key: tuple[str, ...], was: Mapping[str, str | None], fill: Mapping[str, Any]) -> None:
    """Give all rows the columns in `was`, each from the column of before, or with what fills it."""
    lifted = [{name: fill[name] if old is None else row[old] for name, old in was.items()} for row in rows.values()]
    rows.clear()
    rows |= {tuple(row[name] for name in key): row for row in lifted}


def _struct(schema: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    fields = {one["field"]: one for one in schema["fields"]}
    assert list(fields) == list(value)
    return {name: _value(fields[name], found) for name, found in value.items()}


def _value(field: dict[str, Any], value: Any) -> Any:
    """A value of Kafka Connect's JSON form, as its logical type says."""
    if value is None:
        assert field["optional"]
        return None
    name = field.get("name", "").rpartition(".")[2]
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "boolean": (bool,),
        "bytes": (str,),
        "array": (list,),
        "struct": (dict,),
    }
    assert type(value) in kinds.get(field["type"], (int, float)), field
    match name:
        case "Decimal":
            digits = int.from_bytes(base64.b64decode(value), "big", signed=True)
            return Decimal(digits).scaleb(-int(field["parameters"]["scale"]), Context(prec=100))
        case "Date":
            return dt.date(1970, 1, 1) + dt.timedelta(days=value)
        case "Timestamp":
            return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)
        case "MicroTimestamp":
            return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        case "ZonedTimestamp":
            return dt.datetime.fromisoformat(value)
        case "MicroTime":
            return dt.timedelta(microseconds=value)
        case "Bits":
            return base64.b64decode(value)[::-1]
        case "Geometry" | "Point":
            wkb = base64.b64decode(value["wkb"])
            assert name == "Geometry" or struct.unpack("<dd", wkb[5:]) == (value["x"], value["y"])
            return wkb
    return base64.b64decode(value) if field["type"] == "bytes" else value
