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
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import AuditFailed, CatalogAway, ForeignWrite, MainMoved, StaleWriter
from lakeingest.lake.held import Held
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.catalogs.database_catalog import Swap
from lakeingest.lake.iceberg.commits import commit
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Joint, Prepared, Staged, Target
from tests.faults import spoiling
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
        are_seen = seen(joint_of(target), prepared)
        for lake, one, is_seen in zip(self.lakes, prepared, are_seen, strict=True):
            try:
                found[lake.table.name] = one.finish() if is_seen else one.show()
            except (StaleWriter, MainMoved, ForeignWrite) as error:
                found[lake.table.name] = error
        self.staged = [
            one if isinstance(one, Staged) else before for one, before in zip(found.values(), self.staged, strict=True)
        ]
        return found

    def metadata_files(self) -> set[Path]:
        """All metadata.json in the warehouse."""
        return set(self.settings.warehouse.path.rglob("*.metadata.json"))

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


def seen(joint: Joint, prepared: Sequence[Prepared]) -> list[bool]:
    """Show the tables at once: which of them readers see."""
    return list(joint.show(prepared).are_seen)


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
    assert seen(joint_of(target), prepared) == [True] * len(TABLES)
    assert catalog.together == 1
    shop.staged = [one.finish() for one in prepared]
    assert all(one.visible for one in shop.staged)
    shop.assert_seen(2)
    shop.merge(40)
    assert all(isinstance(one, Staged) for one in shop.publish(target).values())
    shop.assert_seen(3)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long(
    "more wrong answers",
    only=("other answers, then sent twice", "late, before it is sent again", "late, after it was sent again", "lost"),
)
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
@pytest.mark.long("one of the answers in turn", turn="answer")
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
    prepared = shop.prepared(target)
    answer = joint_of(target).show(prepared)
    assert (catalog.together, catalog.plan) == (commit.TRIES_TOGETHER, [])
    assert (list(answer.are_seen), answer.is_final) == ([False] * 3, False)
    assert answer.refusal.startswith("the catalog does not say whether it has committed: ")
    shop.staged = [one.show() for one in prepared]
    shop.assert_seen(3)


def test_a_table_of_which_another_run_has_published_stops_alone(shop: Shop) -> None:
    """The others are published one after the other."""
    target, catalog = behind(shop)
    prepared = shop.prepared(target)
    shop.lakes[1].publish(shop.staged[1])
    answer = joint_of(target).show(prepared)
    assert list(answer.are_seen) == [False, True, False]  # readers see what it was to show
    assert answer.refusal == ""  # it says nothing about the catalog
    assert catalog.together == 1
    prepared[0].show(), prepared[1].finish(), prepared[2].show()
    shop.assert_seen(2)


def test_a_table_that_someone_has_changed_stops_alone(shop: Shop) -> None:
    """By the same errors as if it were published by itself."""
    target, _ = behind(shop)
    prepared = shop.prepared(target)
    foreign_snapshot(shop.lakes[1], "main")
    assert seen(joint_of(target), prepared) == [False] * 3
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
    prepared, files = shop.prepared(target), shop.metadata_files()
    assert seen(joint_of(target), prepared) == [False] * 3
    assert [len(rows_of(lake, "main")) for lake in shop.lakes] == [1, 1, 1]
    assert len(shop.metadata_files() - files) == 1  # that of the other commit: a refused one leaves no file
    shop.staged = [one.show() for one in prepared]
    shop.assert_seen(2)


def test_staging_that_moves_on_refuses_the_publish(shop: Shop) -> None:
    """A hand-over to another pipeline is such a move."""
    target, _ = behind(shop)
    prepared = shop.prepared(target)
    lake = shop.lakes[2]
    lake.open().mark(shop.staged[2], lake.leveled(shop.staged[2], 50))
    files = shop.metadata_files()
    assert seen(joint_of(target), prepared) == [False] * 3
    assert shop.metadata_files() == files  # nothing is written before all requirements hold


def test_a_catalog_that_is_away_is_no_fault_of_a_table(shop: Shop) -> None:
    """The run waits for it, as if a table were published by itself; no table stops."""
    target, catalog = behind(shop)
    prepared = shop.prepared(target)
    catalog.is_away = True
    with pytest.raises(CatalogAway):
        shop.lakes[0].publish(shop.staged[0], target)
    catalog.asked = 0
    answer = joint_of(target).show(prepared)
    assert (list(answer.are_seen), answer.refusal) == ([False] * 3, "")
    assert catalog.asked == 2  # the commit, and one table: each answer may take a minute
    for one in prepared:
        with pytest.raises(CatalogAway):
            one.show()
    catalog.is_away = False
    shop.staged = [one.show() for one in prepared]
    shop.assert_seen(2)


def test_a_refusal_without_a_moved_table_is_said(shop: Shop) -> None:
    """The server may refuse requests of this length, or all: whoever publishes has to know it."""
    target, catalog = behind(shop, [not_done("a conflict")])
    prepared = shop.prepared(target)
    answer = joint_of(target).show(prepared)
    assert list(answer.are_seen) == [False] * 3
    assert ("branch lakeingest has changed" in answer.refusal, answer.is_final) == (True, False)
    assert catalog.together == 1
    shop.staged = [one.show() for one in prepared]
    shop.assert_seen(2)


def test_a_failed_audit_is_that_of_its_table(shop: Shop) -> None:
    """It comes before anything is sent."""
    target, catalog = behind(shop)

    def fails(_: Held) -> None:
        raise AuditFailed("a fault")

    audited = replace(shop.staged[0], progress=shop.staged[0].progress.audited())
    with pytest.raises(AuditFailed):
        joint_of(target).prepare(audited, shop.lakes[0].schema, {}, fails)
    assert catalog.together == 0


def test_to_look_again_at_one_table_does_not_prove_one_round(shop: Shop) -> None:
    """A table that has no changes in a round gets no commit: so whoever reads several looks again at all of them."""
    target = IcebergTarget(shop.settings)
    shop.publish(target)
    catalog = open_catalog(shop.settings)

    def look(number: int) -> tuple[int, str]:
        table = catalog.load_table(shop.settings.identifier(TableId("shop", TABLES[number])))
        return table.metadata.refs["main"].snapshot_id, table.properties["lakeingest.position"]

    before = [look(0), look(1)]
    changed = list(zip(shop.lakes[1:], shop.staged[1:], strict=True))  # the first table has no changes in this round
    merged = [lake.merge(one, (40, "b", False), pos=40) for lake, one in changed]
    joint = joint_of(target)
    prepared = [prepare(joint, lake, one) for lake, one in zip(shop.lakes[1:], merged, strict=True)]
    assert seen(joint, prepared) == [True, True]
    third = look(2)
    assert look(0) == before[0]
    assert before[1][1] != third[1]  # two rounds
    assert look(1) != before[1]  # and this shows it


def half_states(settings: config.Target, publish: Callable[[], object], polls: int) -> int:
    """How often a reader finds some tables as of a publish, and others as of another one.

    A poll counts if all tables are the same when they are read again, as `points.md` tells readers. Polls go on until
    there were so many of them, and PUBLISHES publishes. Each publish changes all tables.
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
            names = [settings.identifier(TableId("shop", name)) for name in TABLES]
            return [catalog.load_table(name).properties["lakeingest.position"] for name in names]

        while (counted < polls or published < PUBLISHES) and not ended.is_set():
            first = places()
            if first == places():
                counted += 1
                found += len(set(first)) > 1
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


@pytest.mark.long("shows that the test above can fail")
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
        assert seen(joint_of(target), shop.prepared(target)) == [True] * 3
        found = [lake.loaded() for lake in shop.lakes]
        assert [(one.version, one.published) for one in found] == [(one.version, one.version) for one in shop.staged]
        shop.staged = found
        shop.merge(40)
        prepared = shop.prepared(target)
        lake = shop.lakes[2]
        lake.open().mark(shop.staged[2], lake.leveled(shop.staged[2], 50))
        assert seen(joint_of(target), prepared) == [False] * 3
        assert [lake.loaded().published for lake in shop.lakes] == [one.version for one in found]


class Refusing(spoiling.Proxy):
    """Refuses each commit of several tables with a status, and counts them."""

    status, asked = 0, 0

    def meets(self, _: str, path: str, __: dict[str, str]) -> str:
        """The fault of a request."""
        if not path.endswith("transactions/commit"):
            return ""
        self.asked += 1
        return f"{self.status} before it"


@pytest.mark.long("starts servers")
def test_a_rest_server_that_refuses_is_asked_once_a_round(tmp_path: Path) -> None:
    """Each refusal is said; one that says that there are no such commits is final. The tables are published alone."""
    with TARGETS["rest"](tmp_path) as doc, spoiling.proxied(doc["catalog"]["uri"], Refusing) as (proxy, uri):
        assert isinstance(proxy, Refusing)
        shop = Shop.of(config.Target.model_validate(doc | {"catalog": {"type": "rest", "uri": uri}}))
        target, pos = shop.lakes[0].open(), 30
        for status, is_final in ((400, False), (403, False), (404, False), (413, False), (405, True), (501, True)):
            shop.merge(pos)
            proxy.status, proxy.asked, pos = status, 0, pos + 10
            prepared = shop.prepared(target)
            answer = joint_of(target).show(prepared)
            assert (proxy.asked, bool(answer.refusal), answer.is_final) == (1, True, is_final), status
            assert list(answer.are_seen) == [False] * 3
            shop.staged = [one.show() for one in prepared]


@pytest.mark.long("starts servers")
@pytest.mark.parametrize("name", ["rest without names", "glue on s3"])
def test_a_catalog_that_cannot_says_so(tmp_path: Path, name: str) -> None:
    """Then one table is published after the other."""
    with TARGETS[name](tmp_path) as doc:
        assert IcebergTarget(config.Target.model_validate(doc)).joint is None
