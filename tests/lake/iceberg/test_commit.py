"""Each of our commits takes effect once or not at all, and its writer finds out which of the two, after any answer."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import CommitUnknown, ForeignWrite, StaleWriter
from lakeingest.lake.iceberg.commits import commit
from lakeingest.lake.iceberg.merges import compaction as tidying
from lakeingest.lake.iceberg.merges.marks import mark
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.target import Staged, Target
from tests.lake.conftest import building
from tests.lake.steps import PLAIN, START, UUID, Lake, Row
from tests.lake.unreliable import ANSWERS, FAULTS, SOUND, Fault, behind, done, not_done


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries, and small files are put together sooner."""
    monkeypatch.setattr(commit, "PAUSES", (0.0,) * len(commit.PAUSES))
    monkeypatch.setattr(tidying, "FILES", 3)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table in a warehouse of its own; no step of it needs Spark."""
    settings = config.Target(warehouse=Place.of(tmp_path))
    schema = TableSchema(TableId("shop", "orders"), PLAIN, ("id",))
    return Lake(settings, lambda: IcebergTarget(settings), cast("SparkSession", None), schema, {})


def table_of(lake: Lake) -> Table:
    """The table past our code, under the name that it has."""
    catalog, name = (
        SqlCatalog(config.CATALOG, **lake.settings.pyiceberg_properties()),
        lake.settings.identifier(lake.table),
    )
    if catalog.table_exists(name):
        return catalog.load_table(name)
    [built] = building(catalog, lake)
    return catalog.load_table((name[0], built))


def rows_of(lake: Lake, branch: str = STAGING) -> list[Row]:
    """What any reader finds on a branch."""
    table = table_of(lake)
    found = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def foreign_snapshot(lake: Lake, branch: str = "theirs") -> None:
    """Someone's commit that changes no row, on a branch of their own unless it is said."""
    with table_of(lake).transaction() as transaction, transaction.update_snapshot(branch=branch).fast_append():
        pass


def first(lake: Lake) -> Staged:
    """A copied table before its first publish."""
    staged = lake.copied((1, "a"))
    return lake.open().mark(staged, lake.leveled(staged, 20))


def changed(lake: Lake) -> Staged:
    """A published table with a merge that readers do not see yet."""
    return lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)


def with_zombie(lake: Lake) -> Staged:
    """A table on whose staging branch an unmarked commit stands."""
    staged = changed(lake)
    foreign_snapshot(lake, STAGING)
    return staged


def many(lake: Lake) -> Staged:
    """A table with so many small files that the next merge puts them together."""
    return lake.merge(changed(lake), (3, "c", False), pos=40)


@dataclass(frozen=True)
class Step:
    """A step of a pipeline, what it needs, and what it leaves: the rows of staging, and those that readers see."""

    prepare: Callable[[Lake], Any]
    act: Callable[[Lake, Any, Target], Any]
    staged: list[Row] | None
    seen: list[Row] | None = None
    request: int = 0  # which of the step's requests the faults are for


def create(lake: Lake, _: object, target: Target) -> Staged:
    """The commit that makes a table."""
    return target.create(lake.schema, Progress(lake.table, lake.schema.fingerprint, UUID, 1, START).created())


def merge(lake: Lake, staged: Staged, target: Target) -> Staged:
    """An update and an insert."""
    return lake.merge(staged, (1, "A", False), (3, "c", False), pos=40, target=target)


def tidy(lake: Lake, staged: Staged, target: Target) -> Staged:
    """A merge that puts the files of those before it together."""
    compacted = lake.merge(staged, (4, "d", False), pos=50, target=target)
    assert len(table_of(lake).inspect.data_files(compacted.version)) == 2
    return compacted


def publish(lake: Lake, staged: Staged, target: Target) -> Staged:
    """What staging holds."""
    return lake.publish(staged, target)


STEPS = {
    "create": Step(lambda _: None, create, []),
    "wave": Step(Lake.created, lambda lake, staged, target: lake.wave(staged, [(1, "a")], target=target), [(1, "a")]),
    "merge": Step(changed, merge, [(1, "A"), (2, "b"), (3, "c")], [(1, "a")]),
    "mark": Step(
        changed, lambda lake, staged, target: target.mark(staged, lake.leveled(staged, 40)), [(1, "a"), (2, "b")]
    ),
    "tidy": Step(many, tidy, [(1, "a"), (2, "b"), (3, "c"), (4, "d")], [(1, "a")]),
    "reset": Step(with_zombie, lambda lake, _, target: target.recover(lake.table), [(1, "a"), (2, "b")], [(1, "a")]),
    "first publish": Step(first, publish, [(1, "a")], [(1, "a")]),
    "rename": Step(first, publish, [(1, "a")], [(1, "a")], request=1),
    "publish": Step(changed, publish, [(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
    "discard": Step(Lake.created, lambda lake, _, target: target.discard(lake.table), None),
}


def check(lake: Lake, step: Step, answer: Staged | None) -> None:
    """The step took effect once, and the next process goes on from there."""
    found = lake.open().recover(lake.table)
    if step.staged is None:
        assert found is None
        return
    assert found is not None
    assert answer is not None
    assert (found.version, found.published) == (answer.version, answer.published)
    assert rows_of(lake) == step.staged
    if step.seen is not None:
        assert rows_of(lake, MAIN) == step.seen


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long("one of many wrong answers", only=("late, before it is sent again", "late, after it was sent again"))
@pytest.mark.long("each wrong answer at one step in turn", turn="name")
def test_a_step_whose_answers_are_false_is_done_once(lake: Lake, name: str, fault: str) -> None:
    """Whatever the answers say and wherever copies of the request are: it is done, and we say so."""
    step = STEPS[name]
    staged = step.prepare(lake)
    target, catalog = behind(lake.settings, [SOUND] * step.request + FAULTS[fault])
    answer = step.act(lake, staged, target)
    assert not catalog.plan
    catalog.deliver()
    assert catalog.taken <= 1
    check(lake, step, answer)


def test_the_table_decides_whatever_the_catalog_answers(lake: Lake) -> None:
    """Each false one after success, then each before the request was sent, one mark after the other."""
    staged = changed(lake)
    for answer in ANSWERS:
        for fault in (done(answer), not_done(answer)):
            target, catalog = behind(lake.settings, [fault])
            staged = target.mark(staged, staged.progress)
            assert not catalog.plan
            assert table_of(lake).metadata.refs[STAGING].snapshot_id == staged.version
    assert rows_of(lake) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("name", ["create", "merge", "reset", "first publish", "rename", "discard"])
@pytest.mark.parametrize("late", [False, True], ids=["never there", "there later"])
@pytest.mark.long("each step in one way in turn", turn="late")
def test_a_step_that_is_never_answered_is_found_by_the_next_run(lake: Lake, name: str, *, late: bool) -> None:
    """It is unknown, not refused. When it comes late the next run goes on from it, else that takes the step again."""
    step = STEPS[name]
    staged = step.prepare(lake)
    silence = [Fault(0, ANSWERS["nothing"], late=int(late), late_by=99)] * len(commit.PAUSES)
    target, catalog = behind(lake.settings, [SOUND] * step.request + silence)
    with pytest.raises(CommitUnknown, match=f"{lake.table}: .* was sent 6 times and .* not known"):
        step.act(lake, staged, target)
    assert not catalog.plan
    catalog.deliver()
    assert catalog.taken == late
    is_begun = late or name == "rename"  # after the commit that moves main
    answer = lake.open().recover(lake.table) if is_begun else step.act(lake, staged, lake.open())
    check(lake, step, answer)


def take_over(lake: Lake, name: str) -> None:
    """What another run does with the table as it finds it."""
    staged = lake.open().recover(lake.table)
    if name == "create":
        staged = staged or create(lake, None, lake.open())
    assert staged is not None
    staged = lake.open().mark(staged, staged.progress)
    if name == "publish":
        lake.publish(staged)


@pytest.mark.parametrize("name", ["create", "wave", "merge", "mark", "reset", "publish"])
@pytest.mark.parametrize("arrives", [0, 1], ids=["not done", "done"])
@pytest.mark.long("each step in one way in turn", turn="arrives")
def test_a_writer_without_an_answer_does_not_disturb_its_successor(lake: Lake, name: str, arrives: int) -> None:
    """Of a step that was done we know it, on which the successor builds. One that was not is refused, and stays so."""
    step = STEPS[name]
    staged = step.prepare(lake)
    fault = Fault(arrives, ANSWERS["504"], late=1, late_by=99, meanwhile=lambda: take_over(lake, name))
    target, catalog = behind(lake.settings, [fault])
    if arrives and name != "reset":  # after that the table is loaded again
        answer = step.act(lake, staged, target)
        chain = ancestors_of(table_of(lake).snapshot_by_name(STAGING), table_of(lake).metadata)
        assert answer.version in {one.snapshot_id for one in chain}
    elif arrives:
        assert step.act(lake, staged, target) == lake.loaded()
    else:
        with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
            step.act(lake, staged, target)
    found = lake.loaded()
    catalog.deliver()
    # a creation that comes late has a random name, which nobody uses
    assert catalog.taken == (name == "create" and not arrives)
    assert lake.loaded() == found
    if arrives:
        assert rows_of(lake) == step.staged


def test_a_late_commit_does_not_land_on_a_branch_that_was_reset(lake: Lake) -> None:
    """Its writer got the answer that it is refused: the branch must not come back to where that commit asserts it."""
    staged = changed(lake)
    fault = Fault(0, ANSWERS["nothing"], late=1, late_by=99, meanwhile=lambda: foreign_snapshot(lake, STAGING))
    target, catalog = behind(lake.settings, [fault])
    with pytest.raises(StaleWriter):
        lake.merge(staged, (3, "refused", False), pos=40, target=target)
    found = lake.loaded()
    assert found.version != staged.version
    catalog.deliver()
    assert catalog.taken == 0
    assert lake.loaded() == found
    assert rows_of(lake) == [(1, "a"), (2, "b")]


def foreign_write(lake: Lake) -> None:
    """Someone's commit on what readers see."""
    foreign_snapshot(lake, MAIN)


def foreign_property(lake: Lake) -> None:
    """Someone's ALTER TABLE that concerns neither rows nor columns."""
    with table_of(lake).transaction() as transaction:
        transaction.set_properties(owner="someone")


@pytest.mark.parametrize("name", ["wave", "merge", "tidy", "mark", "reset", "publish"])
@pytest.mark.parametrize("foreign", [foreign_snapshot, foreign_write, foreign_property])
@pytest.mark.long("each step with one commit in turn", turn="foreign")
def test_a_foreign_commit_right_before_ours_does_not_stop_it(
    lake: Lake, name: str, foreign: Callable[[Lake], None]
) -> None:
    """The sequence number of our snapshot is too low then: it is built again while its branch has not moved."""
    step = STEPS[name]
    staged = step.prepare(lake)
    target, catalog = behind(lake.settings, [Fault(before=lambda: foreign(lake))])
    if name in {"reset", "publish"} and foreign is foreign_write:  # these depend on what readers see
        with pytest.raises(ForeignWrite):
            step.act(lake, staged, target)
        return
    step.act(lake, staged, target)
    assert not catalog.plan
    assert rows_of(lake) == step.staged


def test_a_commit_is_refused_on_a_table_with_another_definition(lake: Lake) -> None:
    """Its files were written for the columns that there were: it is for whoever builds it again to look at those."""
    staged = changed(lake)
    loaded, looked = table_of(lake), []
    with table_of(lake).update_schema() as update:
        update.add_column("theirs", StringType())

    def build(found: Table) -> Transaction:
        looked.append(found.schema().column_names)
        transaction = found.transaction()
        mark(transaction, staged.progress, staged.version)
        return transaction

    moved = commit.commit(lake.table, build(loaded), lambda: table_of(lake), build)
    assert looked == [["id", "v"], ["id", "v", "theirs"]]
    assert moved == {STAGING: table_of(lake).metadata.refs[STAGING].snapshot_id}


@pytest.mark.parametrize("times", [5, 6])
def test_repeated_foreign_commits_are_outlasted_for_a_while(lake: Lake, times: int) -> None:
    """One more than we have tries for, and the next run goes on."""
    staged = changed(lake)
    target, _ = behind(lake.settings, [Fault(before=lambda: foreign_snapshot(lake))] * times)
    if times < len(commit.PAUSES):
        merge(lake, staged, target)
    else:
        with pytest.raises(CommitUnknown):
            merge(lake, staged, target)
        merge(lake, staged, lake.open())
    assert rows_of(lake) == [(1, "A"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("retries", [None, "0", "4"])
def test_no_commit_is_built_on_anothers_whatever_the_table_says_of_retries(lake: Lake, retries: str | None) -> None:
    """PyIceberg would retry: a run that was superseded must be refused. New tables say nothing of retries."""
    staged = changed(lake)
    assert "commit.retry.num-retries" not in table_of(lake).properties
    if retries is not None:
        with table_of(lake).transaction() as transaction:
            transaction.set_properties({"commit.retry.num-retries": retries})
    target, _ = behind(lake.settings, [Fault(before=lambda: lake.merge(staged, (1, "successor", False), pos=50))])
    with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
        merge(lake, staged, target)
    assert rows_of(lake) == [(1, "successor"), (2, "b")]
    lake.publish(lake.loaded())
    assert rows_of(lake, MAIN) == [(1, "successor"), (2, "b")]


def test_a_commit_that_cannot_be_recognised_is_refused(lake: Lake) -> None:
    """One of properties alone leaves nothing to look it up by."""
    lake.created()
    transaction = table_of(lake).transaction()
    transaction.set_properties(owner="us")
    with pytest.raises(ValueError, match="to be recognised"):
        commit.commit(lake.table, transaction, lambda: table_of(lake))
    assert "owner" not in table_of(lake).properties


class Rounds:
    """Two runs in turn on one table, each with faults, and the answer that each got for each of its merges."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, random.Random(seed)
        lake.published((0, "r"))
        self.runs = [behind(lake.settings) for _ in range(2)]
        self.staged: list[Staged | None] = [None, None]
        self.row = 0
        self.reported: dict[int, bool | None] = {0: True}  # by a row's key; None where it is not known

    def go(self) -> None:
        """One step of a run; it may meet the other one's while its answer is out."""
        run = self.random.randrange(2)
        self.step(run, beside=self.random.random() < 0.3)
        if self.random.random() < 0.1:
            foreign_snapshot(self.lake, STAGING)
        if self.random.random() < 0.5:
            self.runs[run][1].deliver()

    def step(self, run: int, *, beside: bool = False) -> None:
        """Load where nothing is known, then merge, mark or publish."""
        (target, catalog), kind = self.runs[run], self.random.choice(["merge", "merge", "mark", "publish"])
        catalog.plan = self.plan()
        if beside and catalog.plan:
            catalog.plan[0] = replace(catalog.plan[0], meanwhile=lambda: self.step(1 - run))
        row = None
        try:
            staged = self.staged[run] or target.recover(self.lake.table)
            assert staged is not None
            self.staged[run] = None
            if kind == "merge":
                self.row = row = self.row + 1
                self.reported[row] = None
                self.staged[run] = self.lake.merge(staged, (row, "r", False), pos=20 + row, target=target)
                self.reported[row] = True
            elif kind == "mark":
                self.staged[run] = target.mark(staged, staged.progress)
            elif not staged.visible:
                self.lake.publish(staged, target)
        except StaleWriter:
            if row is not None:
                self.reported[row] = False
        except CommitUnknown:
            pass

    def plan(self) -> list[Fault]:
        """Mostly one fault or two, now and then nothing but silence."""
        if self.random.random() < 0.04:
            return [Fault(0, ANSWERS["nothing"], late=self.random.randrange(2), late_by=99)] * len(commit.PAUSES)
        count = self.random.choices([0, 1, 2], [0.3, 0.5, 0.2])[0]
        return [self.fault() for _ in range(count)]

    def fault(self) -> Fault:
        """One of all that there are."""
        arrives = self.random.choice([0, 0, 1, 1, 2])
        answer = self.random.choice([*ANSWERS.values(), *[None] * (2 * arrives)])
        return Fault(arrives, answer, late=self.random.randrange(2), late_by=self.random.randrange(1, 4))

    def check(self) -> None:
        """Every answer was true; what was not known is known from now on."""
        for _, catalog in self.runs:
            catalog.deliver()
        self.lake.loaded()
        rows = {row for row, _ in rows_of(self.lake)}
        assert len(rows) == len(rows_of(self.lake))
        assert {row for row, there in self.reported.items() if there} <= rows
        assert rows <= {row for row, there in self.reported.items() if there is not False}
        assert {row for row, _ in rows_of(self.lake, MAIN)} <= rows
        self.reported = {row: row in rows for row in self.reported}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long("50 rounds of two runs", only=("1", "2", "3"))
def test_two_runs_with_random_faults_get_true_answers(lake: Lake, seed: int) -> None:
    """50 rounds: each row is there once and only where the answer said so, or got lost; all branches can be read."""
    rounds = Rounds(lake, seed)
    for number in range(50):
        rounds.go()
        if number % 10 == 9:
            rounds.check()
    assert len(rounds.reported) > 15


@pytest.mark.parametrize("answers", [[TimeoutError()], [TimeoutError(), OSError(5, "refused")]])
def test_a_lost_answer_stays_unknown_whatever_is_answered_later(answers: list[Exception]) -> None:
    """An error of the look at the table, or of the second request, does not say that the first had no effect."""
    sent = iter([*answers, *(answers[-1] for _ in commit.PAUSES)])

    def send() -> None:
        raise next(sent)

    def look() -> bool:
        raise OSError(5, "the table cannot be read")

    with pytest.raises(CommitUnknown):
        commit.until_known(TableId("shop", "orders"), send, look)


def test_a_refusal_of_every_request_is_raised_as_it_is() -> None:
    """A file system that refuses a request has carried out no part of it."""

    def send() -> None:
        raise OSError(28, "no space left")

    with pytest.raises(OSError, match="no space left"):
        commit.until_known(TableId("shop", "orders"), send, lambda: False)
