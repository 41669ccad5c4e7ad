"""Every type in both formats of the changelog, from a copy and from the binlog, decoded by others' rules."""

import base64
import datetime as dt
import json
import math
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from lakeingest.commands.feed import feed
from lakeingest.demo.server import LocalServer
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import keeping
from tests.mysql.values import values_of
from tests.servers.debezium import can_compile, read_by_debezium

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


def copied_and_changed(pipe: Pipe, server: LocalServer) -> int:
    """A table of every type: rows that were copied, and the same as changes, with keys from 100 on.

    Returns how many rows have values; row 99 and 199 are NULL.
    """
    values = values_of(server)
    pipe.config = pipe.config.model_copy(update={"tables": pipe.config.tables.model_copy(update={"options": {}})})
    rows = max(map(len, values.values()))
    columns = ", ".join(f'`c"{number}` {source_type}' for number, source_type in enumerate(values))
    pipe.sql("SET sql_mode = ''", f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    literals = [", ".join(pairs[n % len(pairs)][0] for pairs in values.values()) for n in range(rows)]
    pipe.sql(
        *(f"INSERT INTO t VALUES ({n}, {row})" for n, row in enumerate(literals)), "INSERT INTO t (id) VALUES (99)"
    )
    pipe.run()
    pipe.sql(
        *(f"INSERT INTO t VALUES ({n + 100}, {row})" for n, row in enumerate(literals)),
        "INSERT INTO t (id) VALUES (199)",
    )
    pipe.run()
    return rows


def printed_as(pipe: Pipe, form: str) -> list[str]:
    """The lines of the table's changelog in a format."""
    out = BytesIO()
    feed(pipe.config, f"{pipe.database}.t", form, out)
    return out.getvalue().decode().split("\n")[:-1]


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_every_value_is_in_the_changelog_as_it_is(any_pipe: Pipe, any_server: LocalServer) -> None:
    """With NULLs, names of any signs, and values at the edges of their types."""
    pipe, values = any_pipe, values_of(any_server)
    rows = copied_and_changed(pipe, any_server)
    printed = {form: printed_as(pipe, form) for form in ("changelog-json", "debezium-json")}
    flink = replay.flink(printed["changelog-json"], ("id",))
    debezium = replay.debezium(printed["debezium-json"], ("id",))
    assert len(flink) == len(debezium) == 2 * rows + 2
    wrong = []
    for number, (source_type, pairs) in enumerate(values.items()):
        name = f'c"{number}'
        for path in (0, 100):
            assert flink[path + 99,][name] is None
            assert debezium[path + 99,][name] is None
            for n in range(rows):
                wanted = pairs[n % len(pairs)][1]
                wrong += [
                    (form, path, source_type, found, wanted)
                    for form, found, right in (
                        ("changelog-json", flink[path + n,][name], is_json(flink[path + n,][name], wanted)),
                        ("debezium-json", debezium[path + n,][name], is_logical(debezium[path + n,][name], wanted)),
                    )
                    if not right
                ]
    assert wrong == [], "\n".join(map(str, wrong))
    assert json.loads(printed["debezium-json"][0])["payload"]["source"]["version"] == ""


@pytest.mark.skipif(not can_compile(), reason="needs a Java with a compiler, as Debian's openjdk-17-jdk-headless")
@pytest.mark.long("starts Java, and fetches jars the first time")
def test_debezium_reads_the_feed_as_its_own(any_pipe: Pipe, any_server: LocalServer) -> None:
    """Kafka Connect's converter, Debezium's transformation and its deserialiser: each gives the rows of the lines.

    Every type and each kind of event. `tests/commands/test_debezium_readers.py` has the event of a schema change.
    """
    keeping(any_pipe, 7 * 86_400)
    copied_and_changed(any_pipe, any_server)
    any_pipe.sql("UPDATE t SET id = id + 1000 WHERE id = 1", 'UPDATE t SET `c"0` = NULL WHERE id = 2')
    any_pipe.sql("DELETE FROM t WHERE id = 3", "INSERT INTO t (id) VALUES (300)", "TRUNCATE t")
    any_pipe.run()
    printed = printed_as(any_pipe, "debezium-json")
    read = read_by_debezium(printed)
    assert len(read) == len(printed)
    ops, wrong = [], []
    for line, found in zip(printed, read, strict=True):
        doc = json.loads(line, parse_float=Decimal)
        payload, fields = doc["payload"], {one["field"]: one for one in doc["schema"]["fields"]}
        assert found["schema"] == doc["schema"]["name"]
        ops.append(payload["op"])
        assert found["is_own"], doc["schema"]
        assert found["envelope"]["source"] == payload["source"]
        assert plain(found["serde"]) == plain(payload["after"])
        if payload["op"] == "t":
            continue
        row, schema = (payload["after"], fields["after"]) if payload["after"] else (payload["before"], fields["before"])
        assert found["flat"].pop("__op") == payload["op"]
        assert found["flat"].pop("__deleted") == str(payload["op"] == "d").lower()
        assert found["flat"].pop("__source_sequence") == payload["source"]["sequence"]
        assert found["flat"].pop("__ts_ns") == payload["ts_ns"]
        assert list(found["flat"]) == list(row)
        for one in schema["fields"]:
            name = one["field"]
            pair = as_connect(found["flat"][name], one), as_connect(row[name], one, is_raw=True)
            wrong += [] if pair[0] == pair[1] else [(one, *pair)]
    assert wrong == [], "\n".join(map(str, wrong))
    assert set(ops) == {"r", "c", "u", "d", "t"}


def plain(value: Any) -> Any:
    """A value of JSON with doubles in the place of numbers that have decimals: Java writes some with other digits."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def as_connect(value: Any, field: dict[str, Any], *, is_raw: bool = False) -> Any:
    """A value of a field, as Kafka Connect's converter writes it with numbers for decimals.

    `is_raw`: it is the value of the line, where a decimal is the base64 of its digits.
    """
    if value is None:
        return None
    if field.get("name") == "org.apache.kafka.connect.data.Decimal":
        scale = int(field["parameters"]["scale"])
        digits = int.from_bytes(base64.b64decode(value), "big", signed=True) if is_raw else value
        return Decimal(digits).scaleb(-scale, Context(prec=100)) if is_raw else Decimal(value)
    if field["type"] == "float":
        return float(np.float32(float(value)))
    if field["type"] == "double":
        return float(value)
    if field["type"] == "array":
        return [float(np.float32(float(one))) for one in value]
    if field["type"] == "struct" and "x" in value:
        return value | {axis: float(value[axis]) for axis in "xy"}
    return value


def is_json(found: Any, wanted: Any) -> bool:
    """Whether a value of a JSON document, whose numbers are read as decimals, is this one."""
    match wanted:
        case bool() | str():
            return type(found) is type(wanted) and found == wanted
        case Decimal():
            return str(Decimal(found)) == str(wanted)
        case float():
            is_single = abs(wanted) < 1e39 and float(np.float32(wanted)) == wanted
            near = float(np.float32(found)) if is_single else float(found)
            return near == wanted and math.copysign(1, near) == math.copysign(1, wanted)
        case bytes():
            return base64.b64decode(found) == wanted
        case dt.datetime():
            return dt.datetime.fromisoformat(found) == wanted
        case dt.date():
            return dt.date.fromisoformat(found) == wanted
        case list():
            return list(map(float, np.array(found, np.float32))) == wanted
    return bool(found == wanted)


def is_logical(found: Any, wanted: Any) -> bool:
    """Whether a value, decoded by its logical type, is this one."""
    match wanted, found:
        case str(), dt.timedelta():
            hours, minutes, seconds = wanted.lstrip("-").split(":")
            time = dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
            return found == (-time if wanted.startswith("-") else time)
        case str(), Decimal():
            return str(found) == str(Decimal(wanted))
        case Decimal(), Decimal():
            return str(found) == str(wanted)
        case float(), float() | int():
            return is_json(Decimal(repr(found)), wanted)
        case list(), list():
            return is_json(found, wanted)
    return type(found) is type(wanted) and bool(found == wanted)
