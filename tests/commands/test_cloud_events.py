"""Events of CloudEvents: each change is one, with attributes as the specification wants them."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from lakeingest.commands.change_lines import positions
from lakeingest.commands.cloud_events import CloudEvents
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.changelog.reading import Changed, Part
from tests.commands.feeds import AFTER, BEFORE, DELETE, INSERT, LOG, TABLE, altered, changed, copied, truncated

ONE = changed([(200, [(INSERT, 10, "a"), (BEFORE, 1, "v1")])])
TWO = changed([(200, [(INSERT, 10, "a"), (BEFORE, 1, "v1"), (AFTER, 1, "w1")]), (300, [(DELETE, 2, "v2")])])
PARTS: list[Part] = [
    *copied(3),
    ONE,
    TWO,
    altered(400),
    truncated(600),
]
OPTIONAL = {"subject", "time", "gtid"}


def events(parts: Sequence[Part], pipeline: str = "shop") -> list[dict[str, Any]]:
    """The documents of the lines of parts."""
    writer = CloudEvents(LOG, pipeline, TABLE)
    return [json.loads(line) for part in parts for line in writer.lines(part)]


def test_each_change_is_one_event() -> None:
    """An update, too, whose rows are in two parts; DDL and TRUNCATE have what their lines have."""
    rest = Changed(TWO.rows.slice(2), TWO.schema)  # whose first two rows came in the part before
    found = events([*PARTS[:2], rest, *PARTS[3:]])
    assert [doc["type"].removeprefix("lakeingest.") for doc in found] == [
        *["read"] * 3,
        "insert",
        "update",
        "delete",
        "ddl",
        "truncate",
    ]
    assert found[0]["data"] == {"before": None, "after": {"id": 0, "v": "v0"}}
    assert found[4]["data"] == {"before": {"id": 1, "v": "v1"}, "after": {"id": 1, "v": "w1"}}
    assert found[5]["data"] == {"before": {"id": 2, "v": "v2"}, "after": None}
    assert found[5]["time"] == "2026-01-31T12:05:00.000000Z"
    assert found[6]["data"]["key"] == ["id"]
    assert found[6]["data"]["columns"][2]["fill"] == 5
    assert found[7]["data"] == {"statement": "TRUNCATE orders"}


def test_the_attributes_are_those_of_the_specification() -> None:
    """CloudEvents 1.0: lower-case names, non-empty texts, a URI as the source, a time with a zone."""
    for doc in events(PARTS, "a pipeline/ü"):
        assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in doc)
        assert doc.keys() - OPTIONAL == {"specversion", "id", "source", "type", "sequence", "datacontenttype", "data"}
        assert doc["specversion"] == "1.0"
        assert re.fullmatch(r"[A-Za-z0-9%/._~-]+", doc["source"])
        assert unquote(doc["source"].split("/")[2]) == "a pipeline/ü"
        assert doc["datacontenttype"] == "application/json"
        assert "time" not in doc or datetime.fromisoformat(doc["time"]).tzinfo is not None


def test_an_event_that_comes_twice_has_the_same_id_and_no_other_has_it() -> None:
    """Rows of a copy, which have one position, have different ids, however the copy is cut into parts."""
    whole, cut = events(copied(6)), events(list(copied(6, batches=3)))
    assert [doc["id"] for doc in whole] == [doc["id"] for doc in cut]
    found = events([*copied(6), TWO, altered(400)])
    assert len({doc["id"] for doc in found}) == len(found)
    assert [doc["sequence"] for doc in found[:6]] == positions(copied(6)[0], LOG)
    sequences = [doc["sequence"] for doc in found[6:]]
    assert sorted(sequences) == sequences


def test_an_update_whose_old_row_came_before_the_start_has_no_old_row() -> None:
    """A reader may go on from the position between both rows; rows that change nothing else are not mixed up."""
    [found] = events([changed([(200, [(AFTER, 1, "w1")])])])
    assert (found["type"], found["data"]) == ("lakeingest.update", {"before": None, "after": {"id": 1, "v": "w1"}})


def test_names_of_the_table_are_in_the_source() -> None:
    """Each part on its own, so that a slash in a name is none of the path."""
    writer = CloudEvents(LOG, "shop", TableId("a/b", "t. 🐟"))
    [line] = writer.lines(changed([(200, [(INSERT, 1, "x")])]))
    assert [unquote(part) for part in json.loads(line)["source"].split("/")] == [
        "",
        "lakeingest",
        "shop",
        "a/b",
        "t. 🐟",
    ]
