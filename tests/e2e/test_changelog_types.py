"""Every type in both formats of the changelog, from a copy and from the binlog, decoded by others' rules."""

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from lakeingest.commands.feed import feed
from lakeingest.demo.server import LocalServer
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.mysql.values import values_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_every_value_is_in_the_changelog_as_it_is(any_pipe: Pipe, any_server: LocalServer) -> None:
    """With NULLs, names of any signs, and values at the edges of their types."""
    pipe, values = any_pipe, values_of(any_server)
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
    printed = {}
    for form in ("changelog-json", "debezium-json"):
        out = BytesIO()
        feed(pipe.config, f"{pipe.database}.t", form, out)
        printed[form] = out.getvalue().decode().splitlines()
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
