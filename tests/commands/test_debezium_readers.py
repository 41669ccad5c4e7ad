"""Debezium's own classes read lines of debezium-json that are made by hand; `tests/e2e` has all types."""

import json

import pytest

from lakeingest.commands.debezium_json import DebeziumJson
from lakeingest.core.binlog.position import FilePosition
from lakeingest.pipeline.changelog.reading import Part
from tests.commands.feeds import AFTER, BEFORE, DELETE, INSERT, LOG, WIDER, altered, changed, copied, truncated
from tests.servers.debezium import can_compile, read_by_debezium

PARTS: list[Part] = [
    *copied(2),
    changed(
        [(200, [(INSERT, 10, "ä"), (BEFORE, 1, "v1"), (AFTER, 1, None)]), (300, [(BEFORE, 10, "ä"), (AFTER, 11, "ä")])]
    ),
    changed([(310, [(DELETE, 11, "ä")])]),
    altered(400),
    changed([(500, [(INSERT, 12, "c")])], WIDER),
    truncated(600),
]


@pytest.mark.skipif(not can_compile(), reason="needs a Java with a compiler, as Debian's openjdk-17-jdk-headless")
@pytest.mark.long("starts Java, and fetches jars the first time")
def test_debezium_reads_each_kind_of_event_as_its_own() -> None:
    """Its builder makes the same schema; its transformation and its deserialiser give the rows."""
    writer = DebeziumJson(LOG, "shop", FilePosition("binlog.000001", 4), "1")
    lines = [line for part in PARTS for line in writer.lines(part)]
    found = read_by_debezium(lines)
    payloads = [json.loads(line)["payload"] for line in lines]
    rows = [(payload, one) for payload, one in zip(payloads, found, strict=True) if "ddl" not in payload]
    assert all(one["is_own"] for _, one in rows)
    assert [payload["op"] for payload, _ in rows] == ["r", "r", "c", "u", "d", "c", "d", "c", "t"]
    assert [one["serde"] for _, one in rows] == [payload["after"] for payload, _ in rows]
    assert [one["flat"] and one["flat"]["__op"] for _, one in rows] == [*"rrcudcdc", None]
    assert [one["flat"] and one["flat"]["__ts_ns"] for _, one in rows[:-1]] == [one["ts_ns"] for one, _ in rows[:-1]]
    [ddl] = [one for one in found if one["schema"] == "io.debezium.connector.mysql.SchemaChangeValue"]
    assert ddl["envelope"]["fill"] == {"n": 5}
