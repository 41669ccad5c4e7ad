"""Entries of tables that are being built: what a crash leaves, what a superseded run can do, and which one counts."""

from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import CatalogAway, NotOurTable, StaleWriter
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.commits import building_names, commit, entries
from lakeingest.lake.iceberg.tables.naming import built_names, name_to_build, own_name
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.target import Staged
from tests.lake.conftest import BOUNDARIES, building
from tests.lake.steps import PLAIN, START, UUID, Crash, Lake

NAME = ("shop", "orders")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table in a warehouse of its own; no step of it needs Spark."""
    settings = config.Target(warehouse=Place.of(tmp_path))
    schema = TableSchema(TableId(*NAME), PLAIN, ("id",))
    return Lake(settings, lambda: IcebergTarget(settings), cast("SparkSession", None), schema, BOUNDARIES)


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    """The catalog itself."""
    return open_catalog(lake.settings)


def one_more(lake: Lake, catalog: Catalog, other: str | None = None) -> tuple[str, Staged]:
    """A table that another run has begun beside whatever there is: its name, and what is in it."""
    hidden = [(NAME[0], name) for *_, name in catalog.list_tables(NAME[:1])] if catalog.namespace_exists("shop") else []
    for name in hidden:
        catalog.rename_table(name, (NAME[0], f"hidden_{name[1]}"))
    staged = lake.created()
    [made] = building(catalog, lake)
    if other is not None:
        catalog.rename_table((NAME[0], made), (NAME[0], other))
    for name in hidden:
        catalog.rename_table((NAME[0], f"hidden_{name[1]}"), name)
    return other or made, staged


def publishable(lake: Lake, *rows: tuple[int, str]) -> Staged:
    """A table that can be published."""
    staged = lake.copied(*rows)
    return lake.open().mark(staged, lake.leveled(staged, 20))


def shown(catalog: Catalog) -> list[tuple[object, ...]]:
    """What readers see."""
    return sorted(tuple(row.values()) for row in catalog.load_table(NAME).scan().to_arrow().to_pylist())


def test_each_build_has_a_name_of_its_own() -> None:
    """And the table's own name can be told from it."""
    names = {name_to_build(NAME) for _ in range(20)}
    assert len(names) == 20
    assert {(space, own_name(name)) for space, name in names} == {NAME}
    others = (
        "orders",
        f"orders{BUILDING}",
        f"{BUILDING}_0123abcd",
        f"orders{BUILDING}_0123ABCD",
        f"orders{BUILDING}_0123abcd_x",
    )
    for name in others:
        assert own_name(name) == name
    twice = f"orders{BUILDING}_0123abcd{BUILDING}_0123abcd"  # somebody's table has a name that looks like one
    built = [f"orders{BUILDING}_0123abcd", f"orders{BUILDING}_89abcdef", f"o{BUILDING}_0123abcd"]
    assert built_names([*others, *built, twice]) == {"orders": built[:2], "o": built[2:], built[0]: [twice]}


def test_a_superseded_run_leaves_a_later_build_alone(lake: Lake, catalog: Catalog) -> None:
    """It can drop only what it began itself; its commits and its publish are refused, too."""
    zombie = lake.open()
    progress = lake.created().progress
    old = zombie.recover(lake.table)
    assert old is not None
    lake.open().discard(lake.table)
    made = lake.created()
    for late in (
        lambda: zombie.discard(lake.table),
        lambda: zombie.mark(old, progress),
        lambda: zombie.publish(old, lake.schema, {}),
    ):
        with pytest.raises(StaleWriter, match=str(lake.table)):
            late()
    assert lake.loaded() == made
    assert len(building(catalog, lake)) == 1


def test_a_run_that_begins_a_table_beside_another_one_yields(lake: Lake, catalog: Catalog) -> None:
    """Its own entry is dropped, the other run's stays."""
    name, made = one_more(lake, catalog)
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.created()
    assert building(catalog, lake) == [name]
    assert lake.loaded() == made


def test_a_creation_whose_answer_is_lost_is_gone_on_with_by_the_same_run(
    lake: Lake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has listed the names a moment before, and finds the table that it has made all the same."""
    target = lake.open()
    assert target.recover(lake.table) is None
    real = commit.commit

    def lost(*given: Any) -> NoReturn:
        real(*given)
        raise CatalogAway("the answer is lost")

    progress = Progress(lake.table, lake.schema.fingerprint, UUID, 1, START).created()
    monkeypatch.setattr(entries, "commit", lost)
    with pytest.raises(CatalogAway):
        target.create(lake.schema, progress)
    found = target.recover(lake.table)
    assert found is not None
    assert found.progress == progress
    assert len(building(catalog, lake)) == 1


def test_of_several_builds_the_most_advanced_one_is_continued(lake: Lake, catalog: Catalog) -> None:
    """A run that was killed before it yielded has left the other one, which goes when the table is published."""
    staged = publishable(lake, (1, "a"))
    left = {one_more(lake, catalog)[0] for _ in range(4)}
    assert left < set(building(catalog, lake))
    found = lake.loaded()
    assert found.version == staged.version
    lake.publish(found)
    assert left == set(building(catalog, lake))
    lake.loaded()
    assert catalog.list_tables("shop") == [NAME]
    assert shown(catalog) == [(1, "a")]


def test_a_build_that_is_published_counts_before_one_with_more_commits(lake: Lake, catalog: Catalog) -> None:
    """A run was killed between the publish and the new name."""
    _, made = one_more(lake, catalog)
    busy, target = made, lake.open()
    assert target.recover(lake.table) == made
    for _ in range(9):
        busy = target.mark(busy, busy.progress)
    [name] = building(catalog, lake)
    catalog.rename_table(("shop", name), ("shop", "aside"))
    staged = publishable(lake, (1, "a"))
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    catalog.rename_table(("shop", "aside"), ("shop", name))
    assert lake.loaded().published == staged.version
    assert shown(catalog) == [(1, "a")]


def test_what_is_left_beside_a_published_table_is_dropped_without_its_files(lake: Lake, catalog: Catalog) -> None:
    """Only if it is of this table; whoever is in between finds both."""
    lake.publish(publishable(lake, (1, "a")))
    name, _ = one_more(lake, catalog)
    others, _ = one_more(lake, catalog, f"orders{BUILDING}_0123abcd")
    with catalog.load_table(("shop", others)).transaction() as transaction:
        transaction.set_properties({"lakeingest.table": "another.table"})
    files = set(lake.settings.warehouse.path.rglob("*"))
    lake.loaded()
    assert set(catalog.list_tables("shop")) == {NAME, ("shop", others)}
    assert files < set(lake.settings.warehouse.path.rglob("*"))  # with a last metadata.json, which says so
    assert name not in building(catalog, lake)
    assert shown(catalog) == [(1, "a")]


def test_a_foreign_table_under_a_name_for_building_is_refused(lake: Lake, catalog: Catalog) -> None:
    """It is not dropped, and nothing is built beside it."""
    lake.created()
    [name] = building(catalog, lake)
    with catalog.load_table(("shop", name)).transaction() as transaction:
        transaction.set_properties({"lakeingest.table": "another.table"})
    with pytest.raises(NotOurTable, match=name):
        lake.open().recover(lake.table)
    assert building(catalog, lake) == [name]


def test_both_names_are_one_table_in_a_list(lake: Lake, catalog: Catalog) -> None:
    """As `status` lists tables."""
    lake.publish(publishable(lake, (1, "a")))
    one_more(lake, catalog)
    assert lake.open().names() == {NAME}


def test_names_are_listed_once_for_many_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list takes a server seconds if it has thousands of tables; what this run makes is known without it."""
    target = lake.open()
    assert isinstance(target, IcebergTarget)
    listed, real = 0, target._catalog.list_tables  # noqa: SLF001

    def counted(namespace: object) -> object:
        nonlocal listed
        listed += 1
        return real(namespace)  # type: ignore[arg-type]

    monkeypatch.setattr(target._catalog, "list_tables", counted)  # noqa: SLF001
    for number in range(50):
        assert target.recover(TableId("shop", f"t{number}")) is None
    assert listed == 1
    monkeypatch.setattr(building_names, "_LISTED_SECONDS", 0.0)
    assert target.recover(lake.table) is None
    assert listed == 2
