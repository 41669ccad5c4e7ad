"""What `status` and the metrics say about companions of copies, such as histories."""

import json
from collections.abc import Mapping
from typing import NoReturn

import pytest

from lakeingest.commands.status import Statuses, status
from lakeingest.config.changelog import Changelog
from lakeingest.console import to_document
from lakeingest.errors import StateUnreadable
from lakeingest.pipeline.companions.history import Histories
from lakeingest.pipeline.companions.transactions import Transactions
from lakeingest.pipeline.events import Measured, Undelivered
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


def list_of(pipe: Pipe) -> str:
    """The database of the list of transactions: one for each test, because tests share a lake."""
    return f"_lakeingest_{pipe.database.lower()}"


def with_companions(pipe: Pipe, **keys: object) -> Pipe:
    """The pipeline with all companions that its format has."""
    is_iceberg = pipe.config.target.format == "iceberg"
    changelog = Changelog(table=True, transactions=list_of(pipe)) if is_iceberg else Changelog()
    pipe.config = pipe.config.model_copy(update={"history": "scd2", "changelog": changelog, **keys})
    return pipe


def states(found: Statuses) -> dict[str, dict[str, str]]:
    """The state of each companion, by the table's name and the key."""
    return {one.table.name: {each.companion: each.state for each in one.companions} for one in found}


def measured(pipe: Pipe) -> dict[str, Mapping[str, str]]:
    """What the last run has measured last: the errors of companions by table."""
    last = [event for event in pipe.events if isinstance(event, Measured)][-1]
    return {one.table.name: one.companions for one in last.tables}


def refuse(*_: object) -> NoReturn:
    """Nothing can be written."""
    raise StateUnreadable("a file is damaged")


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_status_says_how_far_companions_are(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete, behind, or stopped with its reason; and complete at the next run, without a change of the table."""
    with_companions(pipe)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    pipe.sql("CREATE TABLE o (id INT PRIMARY KEY)")
    assert states(status(pipe.config)) == {"o": {}, "t": {}}
    pipe.run()
    keys = ["history"] if pipe.config.target.format == "hudi" else ["changelog.table", "history"]
    complete = {"o": dict.fromkeys(keys, "complete"), "t": dict.fromkeys(keys, "complete")}
    for found in (status(pipe.config), status(pipe.config, offline=True)):
        assert states(found) == complete  # and companions are no tables of their own
        assert "history" not in found.note
    assert measured(pipe) == {"o": dict.fromkeys(keys, ""), "t": dict.fromkeys(keys, "")}

    pipe.config = pipe.config.model_copy(update={"history": "none"})
    pipe.sql("UPDATE t SET v = 2")
    pipe.run()
    with_companions(pipe)
    found = status(pipe.config)
    assert states(found)["t"] == {**complete["t"], "history": "behind"}
    assert "t__history" in found.note
    assert "lacks what is published since" in found.note

    with monkeypatch.context() as patch:
        patch.setattr(Histories, "write", refuse)
        pipe.run()
    said, *_ = pipe.seen(Undelivered)
    found = status(pipe.config, f"{pipe.database}.t".split())
    assert states(found) == {"t": {**complete["t"], "history": "stopped"}}
    assert "and not on: StateUnreadable at " in found.note
    assert "a file is damaged" in found.note
    assert "history: stopped, StateUnreadable" in repr(found)
    assert "history: stopped, StateUnreadable" in found.to_html("shop")
    [document] = json.loads(json.dumps(to_document(found), default=str))
    [shown] = [each for each in document["companions"] if each["companion"] == "history"]
    assert (shown["state"], shown["stopped"]["error"]) == ("stopped", "StateUnreadable")
    assert shown["read_to"] in found.note
    assert "StateUnreadable" in str(said)
    assert measured(pipe)["t"]["history"] == "StateUnreadable"

    pipe.run()
    assert states(status(pipe.config)) == complete
    assert measured(pipe)["t"]["history"] == ""


def test_the_list_of_transactions_that_stands_still_is_named(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to no table, so it is a note."""
    with_companions(pipe)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "write", refuse)
        pipe.run()
    note = status(pipe.config).note
    assert list_of(pipe) in note
    assert "(changelog.transactions)" in note
    pipe.run()
    assert "changelog.transactions" not in status(pipe.config).note
