"""Several tables are published in one commit: readers see all of them or none, whatever the catalog answers."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import environ
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import AuditFailed, ForeignWrite, MainMoved, StaleWriter
from lakeingest.lake.held import Held
from lakeingest.lake.iceberg import commit
from lakeingest.lake.iceberg.catalogs import open_catalog
from lakeingest.lake.iceberg.database_catalog import Swap
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Joint, Prepared, Staged, Target
from tests.lake.iceberg.test_commit import foreign_snapshot, rows_of
from tests.lake.steps import PLAIN, Lake
from tests.lake.unreliable import ANSWERS, FAULTS, Fault, UnreliableTogether, done, not_done
from tests.servers.catalog_servers import TARGETS

TABLES = ("orders", "items", "with a. dot")
POLLS, PUBLISHES = int(environ.get("LAKEINGEST_POLLS", "300")), 5


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries."""
    monkeypatch.setattr(commit, "PAUSES", (0.0,) * len(commit.PAUSES))


@dataclass
class Shop:
    """Tables that readers see, each with a merge that they do not see yet."""

    settings: config.Target
    lakes: list[Lake]
    staged: list[Staged]

    @classmethod
    def of(cls, settings: config.Target) -> "Shop":
        """New tables of a catalog."""
        lakes = [
            Lake(
                settings,
                lambda: IcebergTarget(settings),
                cast("SparkSession", None),  # no step needs it
                TableSchema(TableId("shop", name), PLAIN, ("id",)),
                {},
            )
            for name in TABLES
        ]
        return cls(settings, lakes, [lake.published((1, "a")) for lake in lakes])

    def merge(self, pos: int) -> None:
        """A change of each table, which readers do not see yet."""
        pairs = zip(self.lakes, self.staged, strict=True)
        self.staged = [lake.merge(staged, (pos, "b", False), pos=pos) for lake, staged in pairs]

    def prepared(self, target: Target) -> list[Prepared]:
        """The publishes of all tables."""
        pairs = zip(self.lakes, self.staged, strict=True)
        return [prepare(joint_of(target), lake, staged) for lake, staged in pairs]

    def publish(self, target: Target) -> Mapping[str, Staged | Exception]:
        """Publish all tables, as a round does. By name: what was published, or why not."""
        prepared, found = self.prepared(target), dict[str, Staged | Exception]()
        are_seen = joint_of(target).show(prepared)
        for lake, one, is_seen in zip(self.lakes, prepared, are_seen, strict=True):
            try:
                found[lake.table.name] = one.finish() if is_seen else one.show()
            except (StaleWriter, MainMoved, ForeignWrite) as error:
                found[lake.table.name] = error
        self.staged = [
            one if isinstance(one, Staged) else before for one, before in zip(found.values(), self.staged, strict=True)
        ]
        return found

    def assert_seen(self, rows: int, names: Collection[str] = TABLES) -> None:
        """Readers see so many rows of these tables, once, and the next run goes on from there."""
        for lake, staged in zip(self.lakes, self.staged, strict=True):
            if lake.table.name in names:
                assert len(rows_of(lake, "main")) == rows
                found = lake.loaded()
                assert (found.version, found.published) == (staged.version, staged.version)


def joint_of(target: Target) -> Joint:
    """What publishes several tables at once."""
    joint = target.joint
    assert joint is not None
    return joint


def prepare(joint: Joint, lake: Lake, staged: Staged) -> Prepared:
    """The publish of one table."""
    audited = replace(staged, progress=staged.progress.audited())
    return joint.prepare(audited, lake.schema, {"lakeingest.gate": "{}"})


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Tables in a catalog of their own, in a folder."""
    found = Shop.of(config.Target(warehouse=Place.of(tmp_path)))
    found.merge(30)
    return found


def behind(shop: Shop, plan: Iterable[Fault] = ()) -> tuple[IcebergTarget, UnreliableTogether]:
    """A target whose catalog meets these faults, and that catalog."""
    target, catalog = IcebergTarget(shop.settings), UnreliableTogether(shop.settings, plan)
    target.__dict__["_catalog"] = catalog  # where the cached property keeps it
    return target, catalog


def test_all_tables_are_seen_at_once(shop: Shop) -> None:
    """By one request; before it, readers see none of them."""
    target, catalog = behind(shop)
    prepared = shop.prepared(target)
    for lake in shop.lakes:
        assert len(rows_of(lake, "main")) == 1
    assert list(joint_of(target).show(prepared)) == [True] * len(TABLES)
    assert catalog.together == 1
    shop.staged = [one.finish() for one in prepared]
    assert all(one.visible for one in shop.staged)
    shop.assert_seen(2)
    shop.merge(40)
    assert all(isinstance(one, Staged) for one in shop.publish(target).values())
    shop.assert_seen(3)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_table_is_published_once_whatever_the_answers_are(shop: Shop, fault: str) -> None:
    """Lost, false or late: what the tables show decides, and late copies change nothing."""
    target, catalog = behind(shop, FAULTS[fault])
    found = shop.publish(target)
    assert not catalog.plan
    catalog.deliver()
    assert catalog.taken <= 1
    assert {name: getattr(one, "visible", one) for name, one in found.items()} == dict.fromkeys(TABLES, True)
    shop.assert_seen(2)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_request_that_took_effect_is_not_sent_again(shop: Shop, answer: str) -> None:
    """The tables show it."""
    target, catalog = behind(shop, [done(answer)])
    shop.publish(target)
    assert catalog.together == 1
    shop.assert_seen(2)


def test_a_request_without_an_answer_is_sent_again_as_a_whole(shop: Shop) -> None:
    """So that the tables are seen at once even then; but not for ever."""
    target, catalog = behind(shop, [not_done("503")])
    shop.publish(target)
    assert (catalog.together, catalog.plan) == (2, [])
    target, catalog = behind(shop, [not_done("503")] * commit.TRIES_TOGETHER)
    shop.merge(40)
    shop.publish(target)
    assert (catalog.together, catalog.plan) == (commit.TRIES_TOGETHER, [])
    shop.assert_seen(3)


def test_a_table_of_which_another_run_has_published_stops_alone(shop: Shop) -> None:
    """The others are published one after the other."""
    target, catalog = behind(shop)
    prepared = shop.prepared(target)
    shop.lakes[1].publish(shop.staged[1])
    shown = joint_of(target).show(prepared)
    assert list(shown) == [False, True, False]  # readers see what it was to show
    assert catalog.together == 1
    prepared[0].show(), prepared[1].finish(), prepared[2].show()
    shop.assert_seen(2)


def test_a_table_that_someone_has_changed_stops_alone(shop: Shop) -> None:
    """By the same errors as if it were published by itself."""
    target, _ = behind(shop)
    prepared = shop.prepared(target)
    foreign_snapshot(shop.lakes[1], "main")
    assert list(joint_of(target).show(prepared)) == [False] * 3
    prepared[0].show()
    with pytest.raises(ForeignWrite):
        prepared[1].show()
    prepared[2].show()
    shop.assert_seen(2, (TABLES[0], TABLES[2]))
    assert len(rows_of(shop.lakes[1], "main")) == 1
    with pytest.raises(ForeignWrite):
        prepare(joint_of(target), shop.lakes[1], shop.staged[1])


def test_a_commit_of_someone_at_the_last_moment_changes_no_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has compared all requirements, and finds at the third row that it names another metadata.json."""
    target, catalog = behind(shop)
    swap = catalog._swap_all  # noqa: SLF001 - nothing else comes so late

    def late(swaps: Sequence[Swap]) -> None:
        foreign_snapshot(shop.lakes[2])
        swap(swaps)

    monkeypatch.setattr(catalog, "_swap_all", late)
    prepared = shop.prepared(target)
    assert list(joint_of(target).show(prepared)) == [False] * 3
    assert [len(rows_of(lake, "main")) for lake in shop.lakes] == [1, 1, 1]
    shop.staged = [one.show() for one in prepared]
    shop.assert_seen(2)


def test_staging_that_moves_on_refuses_the_publish(shop: Shop) -> None:
    """A hand-over to another pipeline is such a move."""
    target, _ = behind(shop)
    prepared = shop.prepared(target)
    lake = shop.lakes[2]
    lake.open().mark(shop.staged[2], lake.leveled(shop.staged[2], 50))
    assert list(joint_of(target).show(prepared)) == [False] * 3


def test_a_failed_audit_is_that_of_its_table(shop: Shop) -> None:
    """It comes before anything is sent."""
    target, catalog = behind(shop)

    def fails(_: Held) -> None:
        raise AuditFailed("a fault")

    audited = replace(shop.staged[0], progress=shop.staged[0].progress.audited())
    with pytest.raises(AuditFailed):
        joint_of(target).prepare(audited, shop.lakes[0].schema, {}, fails)
    assert catalog.together == 0


def half_states(settings: config.Target, publish: Callable[[], object], polls: int) -> int:
    """How often a reader finds some tables as of a publish, and others as of another one.

    A poll counts if the first table is the same before and after the others were read. Polls go on until there were so
    many of them, and PUBLISHES publishes.
    """
    ended, found, published = threading.Event(), 0, 0

    def write() -> None:
        nonlocal published
        try:
            while not ended.is_set():
                publish()
                published += 1
        finally:
            ended.set()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        catalog, counted = open_catalog(settings), 0

        def places() -> list[str]:
            names = [settings.identifier(TableId("shop", name)) for name in (*TABLES, TABLES[0])]
            return [catalog.load_table(name).properties["lakeingest.position"] for name in names]

        while (counted < polls or published < PUBLISHES) and not ended.is_set():
            first, *others, again = places()
            if first == again:
                counted += 1
                found += set(others) != {first}
        assert not ended.is_set(), "the writer has failed"
    finally:
        ended.set()
        writing.join()
    return found


def test_no_reader_sees_half_of_a_publish(shop: Shop) -> None:
    """Readers poll all the time, while one publish follows the other."""
    target, pos = IcebergTarget(shop.settings), 30

    def publish() -> None:
        nonlocal pos
        assert all(isinstance(one, Staged) for one in shop.publish(target).values())
        pos += 10
        shop.merge(pos)

    assert half_states(shop.settings, publish, POLLS) == 0


def test_readers_see_halves_of_publishes_one_after_the_other(shop: Shop) -> None:
    """What the polls find, if it is there."""
    target, pos = IcebergTarget(shop.settings), 30

    def publish() -> None:
        nonlocal pos
        shop.staged = [one.show() for one in shop.prepared(target)]
        pos += 10
        shop.merge(pos)

    assert half_states(shop.settings, publish, 300) > 0


@pytest.mark.long("another catalog of what runs on SQLite")
@pytest.mark.parametrize("name", ["rest", "sql"])
def test_other_catalogs_commit_several_tables_at_once(tmp_path: Path, name: str) -> None:
    """REST by its request, PostgreSQL in a transaction; a refusal changes none of the tables."""
    with TARGETS[name](tmp_path) as doc:
        shop = Shop.of(config.Target.model_validate(doc))
        shop.merge(30)
        target = shop.lakes[0].open()
        assert list(joint_of(target).show(shop.prepared(target))) == [True] * 3
        seen = [lake.loaded() for lake in shop.lakes]
        assert [(one.version, one.published) for one in seen] == [(one.version, one.version) for one in shop.staged]
        shop.staged = seen
        shop.merge(40)
        prepared = shop.prepared(target)
        lake = shop.lakes[2]
        lake.open().mark(shop.staged[2], lake.leveled(shop.staged[2], 50))
        assert list(joint_of(target).show(prepared)) == [False] * 3
        assert [lake.loaded().published for lake in shop.lakes] == [one.version for one in seen]


@pytest.mark.long("starts servers")
@pytest.mark.parametrize("name", ["rest without names", "glue on s3"])
def test_a_catalog_that_cannot_says_so(tmp_path: Path, name: str) -> None:
    """Then one table is published after the other."""
    with TARGETS[name](tmp_path) as doc:
        assert IcebergTarget(config.Target.model_validate(doc)).joint is None
