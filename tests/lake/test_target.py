"""The contract of `lake.target.Target`, held by every format."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from lakeingest.core.copies.phases import Phase
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.core.waves.splits import Split
from lakeingest.errors import StaleWriter
from lakeingest.lake.target import Bounds, no_spark
from lakeingest.mysql.source_types import source_type
from tests.lake.shown import is_shown
from tests.lake.steps import START, Crash, Lake, Row

pytestmark = [pytest.mark.spark, pytest.mark.formats]


def test_a_new_table_is_invisible(lake: Lake, spark: SparkSession) -> None:
    """Until its first publish nobody takes an empty table for the truth; its progress is there."""
    assert lake.open().recover(lake.table) is None
    made = lake.created()
    assert not is_shown(spark, lake.settings, lake.table)
    assert lake.loaded() == made
    assert (made.progress.phase, made.published, made.visible) == (Phase.COPYING, None, False)
    assert lake.rows(made) == []
    staged = lake.wave(made, [(1, "a")])
    assert not is_shown(spark, lake.settings, lake.table)
    assert lake.rows(staged) == [(1, "a")]


def test_waves_append_rows_with_their_progress(lake: Lake) -> None:
    """Each wave is one commit; another process goes on from it; an older commit can still be read."""
    first = lake.wave(lake.created(), [(1, "a"), (2, None)], upper=(5,))
    second = lake.wave(lake.loaded(), [(5, "e")])
    assert lake.loaded() == second
    assert (second.progress.phase, second.progress.wave, second.progress.rows) == (Phase.COPIED, 2, 3)
    assert lake.rows(second) == [(1, "a"), (2, None), (5, "e")]
    assert lake.rows(first) == [(1, "a"), (2, None)]


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [(None, {1, 2, 5}), ((None, 2), {1, 2}), ((5, None), {5}), ((1, 1), {1}), ((3, 4), set())],
)
def test_rows_are_read_within_bounds(lake: Lake, bounds: Bounds | None, wanted: set[int]) -> None:
    """On either side; a format may also read keys beside them that are in the same file."""
    first = lake.wave(lake.created(), [(1, "a"), (2, None)], upper=(5,))
    staged = lake.wave(first, [(5, "e")])
    readers, others = lake.open().readers(staged, ("id",), [bounds, (1, 2)])
    assert {1, 2} <= {key for reader in others for key in reader.read()["id"].to_pylist()}
    found = {key for reader in readers for key in reader.read()["id"].to_pylist()}
    assert wanted <= found
    [alone] = lake.open().readers(staged, ("id",), [bounds])
    found = {key for reader in alone for key in reader.read()["id"].to_pylist()}
    assert wanted <= found <= (wanted | {1, 2} if wanted & {1, 2} else wanted)


def test_a_wave_without_rows_is_a_commit(lake: Lake) -> None:
    """Chunks can be empty, and a whole table."""
    staged = lake.copied()
    assert lake.loaded() == staged
    assert lake.rows(staged) == []


def test_uncommitted_files_add_no_rows(lake: Lake) -> None:
    """A retried or speculative task writes the same rows again, under other names."""
    made = lake.created()
    target = lake.open()
    writer = target.writer(lake.table)
    lost, kept = (writer.write(lake.arrow([(1, "a")])) for _ in range(2))
    assert lost != kept
    chunk = Split(KeyRange(None, None), START, START)
    staged = target.commit_wave(made, [kept], made.progress.wave_committed((chunk,), 1))
    assert lake.rows(staged) == [(1, "a")]


def test_a_stale_writer_adds_nothing(lake: Lake) -> None:
    """Of two processes on one table the one that lost sight of staging is refused, whatever it wants to commit.

    PyIceberg alone would rebase the append on the other's commit, and it would pass.
    """
    stale = lake.created()
    zombie = lake.open()
    file = zombie.writer(lake.table).write(lake.arrow([(1, "twice")]))
    current = lake.wave(lake.loaded(), [(1, "a")])
    chunk = Split(KeyRange(None, None), START, START)
    with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
        zombie.commit_wave(stale, [file], stale.progress.wave_committed((chunk,), 1))
    with pytest.raises(StaleWriter):
        zombie.mark(stale, stale.progress)
    assert lake.loaded() == current
    assert lake.rows(current) == [(1, "a")]


@pytest.mark.parametrize("changes", [[(1, "zombie", False), (2, "zombie", False)], [(9, None, True)], []])
def test_a_stale_merge_is_undone(lake: Lake, changes: list[Row]) -> None:
    """A refused merge, also one that changes nothing, marks nothing; what it did is gone when the table is loaded."""
    stale = lake.copied((1, "a"))
    current = lake.open().mark(stale, lake.leveled(stale, 20))
    with pytest.raises(StaleWriter):
        lake.merge(stale, *changes, pos=30)
    assert lake.loaded() == current
    assert lake.rows(current) == [(1, "a")]


@pytest.mark.long("takes seconds", only=("hudi",))
def test_a_merge_upserts_and_deletes(lake: Lake) -> None:
    """Inserts, updates (also to null), deletes and a moved key, with the progress, in one step."""
    staged = lake.copied(*((number, f"v{number}") for number in range(1, 7)))
    merged = lake.merge(
        staged,
        (2, "changed", False),
        (3, None, False),
        (4, None, True),
        (5, "v5", True),
        (50, "v5", False),
        (7, "new", False),
    )
    assert lake.loaded() == merged
    assert merged.progress.phase is Phase.LEVEL
    assert lake.rows(merged) == [(1, "v1"), (2, "changed"), (3, None), (6, "v6"), (7, "new"), (50, "v5")]
    again = lake.merge(merged, (7, None, True), (4, "back", False), pos=30)
    assert lake.rows(again) == [(1, "v1"), (2, "changed"), (3, None), (4, "back"), (6, "v6"), (50, "v5")]
    assert lake.rows(staged) == [(number, f"v{number}") for number in range(1, 7)]


def test_a_merge_that_changes_nothing_is_fine(lake: Lake) -> None:
    """Deletes of keys that are not there, and no change at all: the rows stay, the progress goes on."""
    staged = lake.copied((1, "a"))
    merged = lake.merge(staged, (2, None, True), (3, None, True))
    assert lake.rows(merged) == [(1, "a")]
    nothing = lake.merge(merged, pos=30)
    assert lake.loaded() == nothing
    assert nothing.progress.position is not None
    assert nothing.progress.position.at.pos == 30
    assert lake.rows(nothing) == [(1, "a")]


@pytest.mark.long("takes seconds", only=("hudi",))
def test_a_composite_key_merges_by_all_its_columns(lake_of: Callable[..., Lake]) -> None:
    """Rows that share a part of the key are distinct, reserved words are quoted, 64 bits without sign are exact."""
    columns = (
        Column("select", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
        Column("from", Kind.INT32, source_type("int"), nullable=False),
        Column("v", Kind.STRING, source_type("text")),
    )
    lake = lake_of(columns, ("select", "from"))
    most = Decimal(2**64 - 1)
    staged = lake.copied((most, 1, "a"), (most, 2, "b"), (most - 1, 1, "c"), (Decimal(2**63), 1, "d"))
    merged = lake.merge(staged, (most, 2, "B", False), (most - 1, 1, None, True), (Decimal(2**63), 2, "e", False))
    assert lake.rows(merged) == [(2**63, 1, "d"), (2**63, 2, "e"), (most, 1, "a"), (most, 2, "B")]
    lake.publish(merged)
    assert lake.seen() == lake.rows(merged)


def test_text_booleans_and_vectors_are_copied_and_merged(lake_of: Callable[..., Lake]) -> None:
    """What MySQL has and a lake has not is text; floats in a list are those that were in it."""
    columns = (
        Column("id", Kind.INT32, source_type("int"), nullable=False),
        Column("at", Kind.TIME, source_type("time(6)")),
        Column("digits", Kind.NUMERAL, source_type("decimal(65,30)")),
        Column("doc", Kind.JSON, source_type("json")),
        Column("flag", Kind.BOOLEAN, source_type("bit(1)")),
        Column("point", Kind.VECTOR, source_type("vector(3)")),
    )
    lake = lake_of(columns)
    one = (1, "-838:59:59.000000", "9" * 35 + "." + "9" * 30, '{"a": null}', True, [0.5, -3.4028234663852886e38])
    two = (2, None, None, None, None, None)
    three = (3, "00:00:00.000001", "-0." + "0" * 29 + "1", "null", False, [1.401298464324817e-45])
    merged = lake.merge(lake.copied(one, two), (*two[:3], "[1, 2.0]", True, [1.0], False), (*three, False))
    assert lake.rows(merged) == [one, (*two[:3], "[1, 2.0]", True, [1.0]), three]
    lake.publish(merged)
    assert lake.seen() == lake.rows(merged)


def test_publishing_shows_exactly_the_audited_commit(lake: Lake) -> None:
    """Readers go from one audited commit to the next; what is staged later stays unseen."""
    first = lake.published((1, "a"))
    assert first.visible
    assert lake.seen() == [(1, "a")]
    assert lake.loaded() == replace(first, progress=lake.loaded().progress)
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    assert (staged.published, staged.visible) == (first.version, False)
    assert lake.seen() == [(1, "a")]
    later = lake.merge(staged, (3, "c", False), pos=40)
    lake.publish(staged)
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert lake.loaded() == replace(later, published=staged.version)


def test_a_target_without_spark_tells_what_is_there(lake: Lake) -> None:
    """As commands open it that only look; they cannot read the rows, and start no Spark by it."""
    staged = lake.published((1, "a"), (2, "b"))
    looking = lake.opened_with(no_spark)
    found = looking.inspect(lake.table)
    assert found is not None
    assert (found.version, found.visible) == (staged.version, True)
    assert looking.count(lake.table, staged.version) == 2
    assert looking.properties(lake.table)["lakeingest.gate"] == "{}"
    looked = looking.look(lake.table)
    assert looked is not None
    assert (looked.staged, dict(looked.properties)) == (found, dict(looking.properties(lake.table)))
    with pytest.raises(RuntimeError, match="opened without Spark"):
        looking.read(lake.table, staged.version)


def test_a_publish_is_refused_when_another_one_was_first(lake: Lake) -> None:
    """A zombie does not take readers back in time."""
    stale = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    current = lake.publish(lake.merge(stale, (3, "c", False), pos=40))
    with pytest.raises(StaleWriter, match="another writer published"):
        lake.publish(stale)
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "c")]
    assert lake.loaded().published == current.version


@pytest.mark.parametrize("unseen", [False, True], ids=["on what readers see", "on staged changes"])
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
@pytest.mark.long("one of the copies in turn", turn="unseen")
def test_a_copy_that_starts_over_has_only_its_new_rows(lake: Lake, *, unseen: bool) -> None:
    """Readers see the old rows until the publish, and exactly the new ones from then on; merges go on as before."""
    before = lake.published((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    if unseen:
        before = lake.merge(lake.merge(before, (2, "b2", False), pos=30), (1, None, True), (9, "i", False), pos=40)
    empty = lake.started_over(before)
    assert lake.loaded() == empty
    assert (empty.progress.phase, empty.published, empty.visible) == (Phase.COPYING, before.published, False)
    assert lake.rows(empty) == []
    first = lake.wave(empty, [(2, "b"), (3, "new")], upper=(5,))
    copied = lake.wave(lake.loaded(), [(5, "e"), (6, "f"), (7, "g")])
    assert lake.rows(first) == [(2, "b"), (3, "new")]
    assert lake.rows(copied) == [(2, "b"), (3, "new"), (5, "e"), (6, "f"), (7, "g")]
    merged = lake.merge(copied, (3, "newer", False), (7, None, True), (8, "h", False), pos=50)
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert lake.rows(merged) == [(2, "b"), (3, "newer"), (5, "e"), (6, "f"), (8, "h")]
    assert lake.loaded() == merged
    shown = lake.publish(merged)
    assert lake.seen() == lake.rows(merged)
    assert lake.loaded().version == shown.version
    lake.publish(lake.merge(shown, (2, None, True), (10, "j", False), pos=60))
    assert lake.seen() == [(3, "newer"), (5, "e"), (6, "f"), (8, "h"), (10, "j")]


def test_a_column_that_becomes_a_vector_is_one_when_the_copy_starts_over(lake_of: Callable[..., Lake]) -> None:
    """Bytes and floats in a list are two types, although a column keeps its place in the table."""
    key = Column("id", Kind.INT32, source_type("int"), nullable=False)
    lake = lake_of((key, Column("v", Kind.BINARY, source_type("varbinary(9)"))))
    before = lake.published((1, b"x"))
    lake.schema = replace(lake.schema, columns=(key, Column("v", Kind.VECTOR, source_type("vector(2)"))))
    copied = lake.wave(lake.started_over(before), [(1, [0.5, 1.0])])
    lake.publish(lake.open().mark(copied, lake.leveled(copied, 40)))
    assert lake.seen() == [(1, [0.5, 1.0])]


def test_a_copy_can_start_over_twice_and_as_an_empty_table(lake: Lake) -> None:
    """What was staged since the first time is not there after the second; a table without rows is shown as such."""
    again = lake.started_over(lake.wave(lake.started_over(lake.published((1, "a"))), [(2, "b")], upper=(5,)))
    copied = lake.wave(again, [])
    assert lake.rows(copied) == []
    lake.publish(lake.open().mark(copied, lake.leveled(copied, 40)))
    assert lake.seen() == []


def test_a_stale_writer_starts_nothing_over(lake: Lake) -> None:
    """It is refused, and staging stays as it is."""
    stale = lake.published((1, "a"))
    current = lake.merge(stale, (2, "b", False), pos=30)
    with pytest.raises(StaleWriter):
        lake.started_over(stale)
    assert lake.loaded() == current


@pytest.mark.parametrize("visible", [False, True], ids=["a first copy", "one that was started over"])
@pytest.mark.long("one of the copies in turn", turn="visible")
def test_a_copy_that_is_not_complete_can_go_back_to_an_earlier_commit(lake: Lake, *, visible: bool) -> None:
    """It has the rows of then and another progress, and goes on; readers see no difference."""
    begun = lake.started_over(lake.published((7, "old"))) if visible else lake.created()
    first = lake.wave(begun, [(1, "a"), (2, "b")], upper=(3,))
    merged = lake.merge(first, (1, "a2", False), pos=20)
    last = lake.wave(merged, [(3, "c")], upper=(4,))
    target = lake.open()
    assert target.earlier(last) == [merged, first, begun]
    with pytest.raises(StaleWriter):
        target.go_back(merged, first.version, first.progress)
    progress = replace(first.progress, nulled=5)
    back = target.go_back(last, first.version, progress)
    assert lake.loaded() == back
    assert (back.progress, back.published, lake.rows(back)) == (progress, last.published, [(1, "a"), (2, "b")])
    assert first in lake.open().earlier(back)
    with pytest.raises(StaleWriter):
        lake.wave(last, [(4, "d")])
    copied = lake.wave(back, [(3, "other")])
    assert lake.rows(copied) == [(1, "a"), (2, "b"), (3, "other")]
    if visible:
        assert lake.seen() == [(7, "old")]
    lake.publish(lake.open().mark(copied, lake.leveled(copied, 40)))
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "other")]


def test_only_what_was_never_published_is_discarded(lake: Lake) -> None:
    """A table that readers see is never dropped; one that is being built leaves room for a new one."""
    lake.copied((1, "a"))
    lake.open().discard(lake.table)
    assert lake.open().recover(lake.table) is None
    published = lake.published((2, "b"))
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.open().discard(lake.table)
    assert lake.loaded().version == published.version
    assert lake.seen() == [(2, "b")]


def test_a_crash_between_files_and_commit_leaves_nothing(lake: Lake) -> None:
    """The wave is not there; the next process reads its chunks again, and its rows are there once."""
    made = lake.created()
    with pytest.raises(Crash):
        lake.wave(made, [(1, "a")], target=lake.dying_before("commit"))
    assert lake.loaded() == made
    assert lake.rows(made) == []
    assert lake.rows(lake.wave(lake.loaded(), [(1, "a")])) == [(1, "a")]


def test_a_crash_between_merge_and_mark_takes_the_merge_back(lake: Lake) -> None:
    """Rows and progress are those before the merge; done again, it leaves what it would have left at first."""
    staged = lake.copied((1, "a"), (2, "b"))
    changes: list[Row] = [(1, None, True), (2, "B", False), (3, "c", False)]
    with pytest.raises(Crash):
        lake.merge(staged, *changes, target=lake.dying_before("commit"))
    assert lake.loaded() == staged
    assert lake.rows(lake.loaded()) == [(1, "a"), (2, "b")]
    assert lake.rows(lake.merge(lake.loaded(), *changes)) == [(2, "B"), (3, "c")]


def test_a_crash_within_the_first_publish_is_finished(lake: Lake) -> None:
    """What was published is found by the name that users query, with the next process at the latest; it goes on."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    assert lake.open().inspect(lake.table) == replace(staged, published=staged.version)
    assert lake.loaded() == replace(staged, published=staged.version)
    assert lake.seen() == [(1, "a")]
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_a_crash_between_discard_and_create_begins_anew(lake: Lake) -> None:
    """There is no table then; the one that is made next has nothing of the old, nor takes anything of its writers."""
    old = lake.open().mark(lake.copied((1, "old")), lake.leveled(lake.loaded(), 20))
    lake.open().discard(lake.table)
    assert lake.open().recover(lake.table) is None
    made = lake.created()
    late_ones: list[Callable[[], object]] = [
        lambda: lake.open().mark(old, old.progress),
        lambda: lake.merge(old, (2, "old", False), pos=30),
        lambda: lake.publish(old),
    ]
    for late in late_ones:
        with pytest.raises(StaleWriter, match=str(lake.table)):
            late()
    assert lake.loaded() == made
    assert lake.rows(lake.wave(made, [(1, "new")])) == [(1, "new")]


def test_a_writer_of_a_table_that_is_gone_is_refused(lake: Lake) -> None:
    """Another run discarded it; nothing is made or dropped by the one that did not know."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    lake.open().discard(lake.table)
    late_ones: list[Callable[[], object]] = [
        lambda: lake.open().writer(lake.table),
        lambda: lake.open().mark(staged, staged.progress),
        lambda: lake.publish(staged),
        lambda: lake.open().discard(lake.table),
    ]
    for late in late_ones:
        with pytest.raises(StaleWriter, match=str(lake.table)):
            late()
    assert lake.open().recover(lake.table) is None


def test_of_two_runs_that_make_a_table_one_is_refused(lake: Lake) -> None:
    """Neither drops nor takes over the other's, whether that is being built or readers see it already."""
    made = lake.created()
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.created()
    assert lake.loaded() == made
    staged = lake.wave(made, [(1, "a")])
    published = lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.created()
    assert lake.loaded() == replace(published, progress=lake.loaded().progress)
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]
