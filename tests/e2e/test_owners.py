"""A copy has one owner: a second pipeline is refused by name, unless the copy is handed over to it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lakeingest.commands.adopt import adopt
from lakeingest.commands.check import check
from lakeingest.commands.status import status
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, NotOurCopy, StaleWriter, UsageError
from lakeingest.lake.formats import open_adoptions
from lakeingest.lake.identity import owner_here
from lakeingest.pipeline.events import Event, Merged, Opened, Published, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.servers.stores import on_disk

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


def at(pipe: Pipe, state: Path | Place, name: str | None = None) -> Pipe:
    """A pipeline of the same tables with another state folder; it has the same name unless one is given."""
    changed = {"state": Place.of(state), "name": name or pipe.config.name}
    return replace(pipe, config=pipe.config.model_copy(update=changed), events=[])


@pytest.fixture
def other(pipe: Pipe, tmp_path: Path) -> Pipe:
    """A second pipeline, which is called like the first one."""
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO orders VALUES {', '.join(f'({i}, {i})' for i in range(30))}",
        "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40))",
        "INSERT INTO items VALUES (1, 'a'), (2, 'b')",
    )
    return at(pipe, tmp_path / "other")


def owner(pipe: Pipe, table: str = "orders") -> str:
    """The id that a copy names."""
    found = open_adoptions(pipe.config).owner(TableId(pipe.database, table))
    assert found is not None
    return found.id


def ident(pipe: Pipe) -> str:
    """The id of a pipeline."""
    return owner_here(pipe.config).id


def refused(pipe: Pipe, *tables: str) -> LakeIngestError:
    """How a run ends that is not the table's owner."""
    with pytest.raises(NotOurCopy, match="lakeingest adopt") as raised:
        pipe.run(*tables)
    assert raised.value.exit_code == 3
    return raised.value


@pytest.mark.long("whole runs")
def test_a_second_pipeline_is_refused_until_the_copy_is_handed_over(pipe: Pipe, other: Pipe) -> None:
    """Its own tables go on; `check` and `status` say it; after the hand-over the first one is refused."""
    pipe.run("orders")
    pipe.sql("UPDATE orders SET v = 'x' WHERE id < 3")
    error = refused(other)
    assert f"{pipe.database}.orders: its copy belongs to the pipeline {pipe.config.name} with the state" in str(error)
    other.assert_equal("items")
    assert owner(pipe) == ident(pipe) != ident(other) == owner(pipe, "items")
    refused(pipe)
    pipe.assert_equal("orders")
    [one] = [one for one in status(other.config) if one.table.name == "orders"]
    assert one.stopped is not None
    assert one.stopped.error == "NotOurCopy"
    assert any("lakeingest adopt" in (problem.finding or "") for problem in check(other.config, pipe.spark).problems)

    name = f"{pipe.database}.orders"
    for wrong in (None, "another"):
        with pytest.raises(UsageError, match=f"lakeingest adopt --from {pipe.config.name} {name}"):
            adopt(other.config, [name], wrong)
    [adopted] = adopt(other.config, [name], pipe.config.name)
    assert adopted.before is not None
    pipe.sql("DELETE FROM orders WHERE id = 7")
    refused(pipe, "orders")
    other.run()
    other.assert_equal()
    assert owner(other) == ident(other)
    [again] = adopt(other.config, [name], pipe.config.name)
    assert again.before is None
    other.run()
    other.assert_equal()


@pytest.mark.parametrize("when", [Opened, WaveCommitted])
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("WaveCommitted",))
def test_of_two_first_copies_one_is_refused(pipe: Pipe, other: Pipe, when: type[Event]) -> None:
    """Whoever begins first owns the table; nothing is lost or doubled."""
    errors: list[LakeIngestError] = []

    def race(event: Event) -> None:
        if isinstance(event, when) and not other.events:
            try:
                other.run("orders")
            except LakeIngestError as error:
                errors.append(error)

    try:
        pipe.run("orders", observe=race)
    except LakeIngestError as error:
        errors.append(error)
    [lost] = errors
    assert isinstance(lost, NotOurCopy | StaleWriter)
    winner, loser = (pipe, other) if owner(pipe) == ident(pipe) else (other, pipe)
    assert winner.seen(Published)
    assert not loser.seen(Published)
    pipe.sql("UPDATE orders SET v = 'x' WHERE id < 3")
    refused(loser, "orders")
    winner.run("orders")
    winner.assert_equal("orders")


@pytest.mark.long("whole runs")
def test_a_hand_over_refuses_what_the_owner_has_prepared(pipe: Pipe, other: Pipe) -> None:
    """Between its merge and its publish: the publish takes no effect, and the next owner has every change."""
    pipe.run("orders")
    pipe.sql("UPDATE orders SET v = 'x' WHERE id < 3", "DELETE FROM orders WHERE id = 9")

    def hand_over(event: Event) -> None:
        if isinstance(event, Merged):
            adopt(other.config, [f"{pipe.database}.orders"], pipe.config.name)

    with pytest.raises((NotOurCopy, StaleWriter)):
        pipe.run("orders", observe=hand_over)
    assert len(pipe.seen(Published)) == 1
    refused(pipe, "orders")
    other.run("orders")
    other.assert_equal("orders")


@pytest.mark.long("whole runs")
@pytest.mark.local("folders are moved and copied")
def test_a_state_folder_may_be_moved_or_lost_and_a_copy_of_it_is_another_pipeline(
    pipe: Pipe, other: Pipe, tmp_path: Path
) -> None:
    """The moved one is the owner's; one that is made anew at the same place, too."""
    pipe.run("orders")
    before = ident(pipe)
    copied, moved = tmp_path / "copied", tmp_path / "moved"
    shutil.copytree(on_disk(pipe.state), copied)
    refused(at(pipe, copied), "orders")
    on_disk(pipe.state).rename(moved)
    there = at(pipe, moved)
    pipe.sql("UPDATE orders SET v = 'x' WHERE id < 3")
    there.run("orders")
    there.assert_equal("orders")
    assert ident(there) == before
    shutil.rmtree(moved)
    pipe.sql("DELETE FROM orders WHERE id = 9")
    there.run("orders")
    there.assert_equal("orders")
    assert owner(there) == ident(there) != before
    refused(other, "orders")
