import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Place, Position
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.needed import needed_by
from lakeingest.core.copies.phases import TRANSITIONS, IllegalStep, Phase, Step
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.progress_form import COMPANION_FORMAT, FORMAT, GAP_FORMAT, REREAD_FORMAT
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Patch, Reread
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import MergePlan, plan_merge
from lakeingest.errors import SpoolGap, StateUnreadable
from tests.core.logged import log_of

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOG = [(Gtid(SERVER, number), Place(0, 1, number)) for number in range(1, 100)]
COVERED, HIGH = Place(0, 1, 0), Place(0, 1, 3)
NEW = Progress(TableId("shop", "orders"), "f00d", SERVER, 0, COVERED)
FIRST = Split(KeyRange(None, (5,)), low=GtidSet(), high=HIGH)
PATCH = Patch("p", KeyRange((1,), (9,)), GtidSet(), Place(0, 1, 8))


def position(number: int) -> Position:
    """The position after that many transactions."""
    return Position(SERVER, 0, FilePosition("binlog.000001", number), GtidSet.of({(SERVER, ""): [(1, number)]}))


def plan(progress: Progress, number: int) -> MergePlan:
    """The plan of a merge to there; before any split is finished, one that covers nothing."""
    if not progress.splits.all:
        return MergePlan(Splits(), (), position(number).place)
    log, stop = log_of(LOG[:number]), position(number).place
    return plan_merge(progress.splits, stop, log, progress.covered_from, progress.patches)


def last_wave(progress: Progress) -> Progress:
    """The rest of the table."""
    rest = KeyRange(progress.splits.copied_up_to, None)
    return progress.wave_committed((Split(rest, low=GtidSet.of_gtids([LOG[0][0]]), high=HIGH),), 5)


def merged(progress: Progress) -> Progress:
    """One merge further, which adds a row."""
    number = 7 if progress.position is None else progress.position.place.pos + 1
    return progress.merged(plan(progress, number), position(number), inserted=2, deleted=1)


def partly_merged(progress: Progress) -> Progress:
    """A merge that was planned while only the first of the splits was finished."""
    splits = Splits(progress.splits.all[:1])
    early = MergePlan(splits, ((FIRST.range, COVERED),), position(7).place)
    return progress.merged(early, position(7), inserted=2, deleted=1)


HERE = Position("4f22fb58-71ca-11e1-9e33-c80aa9429563", 2, FilePosition("other.000003", 200), None)


def moved(progress: Progress) -> Progress:
    """A table whose position is found on another server; a copied one has a patch that waits."""
    if progress.phase is Phase.COPIED:
        progress = merged(progress).reread_rows([PATCH], COVERED, signals=[4])
    return progress.moved(HERE)


THERE = replace(HERE, at=FilePosition("other.000003", 900))

STEPS: dict[Step, Callable[[Progress], Progress]] = {
    Step.CREATED: Progress.created,
    Step.WAVE: lambda progress: progress.wave_committed((FIRST,), 10),
    Step.LAST_WAVE: last_wave,
    Step.MERGE: merged,
    Step.PARTIAL_MERGE: partly_merged,
    Step.GATES: Progress.audited,
    Step.PUBLISH: Progress.published,
    Step.PATCH: lambda progress: progress.reread_rows([PATCH], COVERED, signals=[4]),
    Step.SAME: lambda progress: progress.reread_rows([], COVERED, signals=[4]),
    Step.QUIET: lambda progress: progress.unchanged(position(99)),
    Step.LIFT: lambda progress: progress.lifted(position(99), "beef"),
    Step.MOVE: moved,
    Step.CARRY: lambda progress: progress.carried(HERE, THERE),
    Step.QUARANTINE: lambda progress: progress.quarantined([(3,)], 15),
    Step.GAP: lambda progress: progress.over_gap(position(99), "beef", position(98).place, signals=[3]),
    Step.RESTART: lambda progress: progress.started_over(NEW, signals=[3]),
}
MERGES = {Step.MERGE, Step.PARTIAL_MERGE}
PATH = [Step.CREATED, Step.WAVE, Step.LAST_WAVE, Step.MERGE, Step.GATES, Step.PUBLISH]


def at(phase: Phase) -> Progress:
    """A table in that phase, by the shortest way; COPYING with its first wave."""
    progress, steps = NEW, iter(PATH)
    while progress.phase is not phase or (phase is Phase.COPYING and not progress.splits.all):
        progress = STEPS[next(steps)](progress)
    return progress


def test_a_table_that_was_emptied_has_no_rows_at_a_later_place() -> None:
    """Its splits stand there."""
    before = at(Phase.PUBLISHED)
    emptied = before.emptied(position(99), "beef")
    assert before.rows
    assert (emptied.rows, emptied.stop, emptied.fingerprint) == (0, position(99).place, "beef")


def test_a_table_is_lifted_to_a_later_place_alone() -> None:
    """Its rows are as many as before, and the gates have to look at them."""
    before = at(Phase.PUBLISHED)
    lifted = before.lifted(position(99), "beef")
    assert (lifted.stop, lifted.position, lifted.rows) == (position(99).place, position(99), before.rows)
    assert before.position is not None
    with pytest.raises(ValueError, match="does not come after"):
        before.lifted(before.position, "beef")
    with pytest.raises(ValueError, match="are of two servers"):
        before.lifted(replace(position(99), epoch=7), "beef")


def test_a_table_moves_to_another_server_with_the_rows_that_are_merged() -> None:
    """Its patches go: their signals are served again. Without patches what is answered stays answered."""
    before = at(Phase.PUBLISHED)
    after = before.reread_rows([], COVERED, signals=[4], last=True).moved(HERE)
    assert (after.stop, after.position, after.rows, after.answered) == (HERE.place, HERE, before.rows, (4,))
    patched = before.reread_rows([PATCH], COVERED, signals=[4], last=True).moved(HERE)
    assert (patched.patches, patched.reread_since, patched.read_to, patched.answered) == ((), None, None, ())
    with pytest.raises(ValueError, match="do not stand at one position"):
        at(Phase.COPIED).moved(HERE)


def test_chunks_are_carried_to_a_server_that_has_all_that_they_saw() -> None:
    """They count from where the spool begins there; without chunks, or of a level table, nothing is carried."""
    before = at(Phase.COPYING)
    assert before.is_proven(HIGH)
    assert not before.is_proven(replace(HIGH, pos=HIGH.pos - 1))
    assert not before.is_proven(replace(HIGH, epoch=HIGH.epoch + 1))
    assert not any(at(phase).is_proven(HIGH) for phase in (Phase.NEW, Phase.LEVEL))
    after = before.carried(HERE, THERE)
    assert after.splits == Splits((Split(before.splits.all[0].range, low=HERE.place, high=THERE.place),))
    assert (after.position, after.read_to, after.needed_from, after.rows) == (HERE, THERE, HERE.place, before.rows)
    known = GtidSet.of_gtids([LOG[0][0]])
    assert before.carried(replace(HERE, gtids=known), THERE).splits.all[0].low == known
    settled = CascadesRead("f00d", COVERED)
    assert replace(before, cascades=settled).carried(HERE, THERE).cascades == CascadesRead("f00d", HERE.place)


def test_chunks_are_carried_without_the_patches_that_have_answered_signals() -> None:
    """As when a table moves: the signals are served again, unless no row differed."""
    before = at(Phase.COPIED)
    same = before.reread_rows([], COVERED, signals=[4], last=True).carried(HERE, THERE)
    assert same.answered == (4,)
    patched = before.reread_rows([PATCH], COVERED, signals=[4], last=True).carried(HERE, THERE)
    assert (patched.phase, patched.patches, patched.answered) == (Phase.COPIED, (), ())
    partly = before.reread_rows([PATCH], COVERED, signals=[4], up_to=(7,)).carried(HERE, THERE)
    assert partly.reread is None


def stored(progress: Progress) -> Any:
    """The document as a commit gives it back."""
    return json.loads(json.dumps(progress_form.to_json(progress)))


def identity(progress: Progress) -> tuple[object, ...]:
    """What never changes while a table is copied."""
    return progress.table, progress.fingerprint, progress.server_uuid, progress.epoch, progress.covered_from


@pytest.mark.parametrize(("phase", "step"), sorted(TRANSITIONS))
def test_every_legal_step_leads_where_the_table_says(phase: Phase, step: Step) -> None:
    """A step changes nothing of the table's identity, but a lift its definition, a failover its server, a gap both."""
    before = NEW.created() if step is Step.WAVE else at(phase)
    after = STEPS[step](before)
    assert after.phase is TRANSITIONS[phase, step]
    expected = replace(before, fingerprint="beef") if step is Step.LIFT else before
    if step is Step.GAP:
        expected = replace(before, fingerprint="beef", covered_from=position(98).place)
    if step in {Step.MOVE, Step.CARRY}:
        expected = replace(before, server_uuid=HERE.server_uuid, epoch=HERE.epoch, covered_from=HERE.place)
    assert identity(after) == identity(expected)


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        (phase, step)
        for phase in Phase
        for step in Step
        if (phase, step) not in TRANSITIONS
        # which merge it was shows afterwards: it is illegal only where neither is legal
        and (step not in MERGES or not any((phase, merge) in TRANSITIONS for merge in MERGES))
    ],
)
def test_every_illegal_step_is_refused_and_changes_nothing(phase: Phase, step: Step) -> None:
    """A table that is complete takes no wave, and only audited rows are published."""
    before = at(phase)
    kept = stored(before)
    with pytest.raises(ValueError, match=r"no .* when |no rows|no more chunks|planned on other|at one position"):
        STEPS[step](before)
    assert stored(before) == kept


@pytest.mark.parametrize(
    ("phase", "step"), [(phase, step) for phase in Phase for step in Step if (phase, step) not in TRANSITIONS]
)
def test_what_is_not_in_the_table_is_no_step(phase: Phase, step: Step) -> None:
    """Every other pair of a phase and a step, whichever method would take it."""
    with pytest.raises(IllegalStep, match=f"no {step} when {phase}$"):
        at(phase)._after(step)  # noqa: SLF001 - no method takes the kind of merge


def test_a_step_too_soon_says_what_stands_in_the_way() -> None:
    """The phase and the step are named."""
    with pytest.raises(IllegalStep, match="no publish when level"):
        at(Phase.LEVEL).published()


def test_waves_and_merges_are_counted() -> None:
    """The row count is what every commit so far must have left on staging."""
    progress, seen = NEW, list[tuple[int, int, Position | None]]()
    for step in PATH:
        progress = STEPS[step](progress)
        seen.append((progress.wave, progress.rows, progress.position))
    level = (2, 16, position(7))
    assert seen == [(0, 0, None), (1, 10, None), (2, 15, None), level, level, level]


def test_a_merge_lifts_the_splits_it_was_planned_on() -> None:
    """A wave that was committed meanwhile, even the last one, keeps its watermarks: not level yet."""
    copying = at(Phase.COPYING)
    early = plan(copying, 7)
    copied = last_wave(copying)
    progress = copied.merged(early, position(7), inserted=0, deleted=0)
    assert progress.phase is Phase.COPIED
    assert progress.splits.all == (Split(FIRST.range, merged_at=position(7).place), copied.splits.all[1])
    assert merged(progress).phase is Phase.LEVEL


def test_a_merge_is_recorded_at_its_own_stop() -> None:
    """Rows of one place and the position of another would be a wrong answer."""
    copied = at(Phase.COPIED)
    with pytest.raises(ValueError, match="merged to"):
        copied.merged(plan(copied, 7), position(8), inserted=0, deleted=0)


def test_impossible_progress_cannot_be_built() -> None:
    """A phase without what it promises, or a count below nothing."""
    level = at(Phase.LEVEL)
    for phase in (Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED):
        for wrong in ({"position": None}, {"position": position(9)}, {"splits": Splits()}):
            with pytest.raises(ValueError, match="do not stand at its position"):
                replace(level, phase=phase, **wrong)
    with pytest.raises(ValueError, match="chunks are missing"):
        replace(at(Phase.COPYING), phase=Phase.COPIED)
    with pytest.raises(ValueError, match="negative"):
        replace(NEW, rows=-1)
    with pytest.raises(ValueError, match="negative"):
        replace(NEW, wave=-1)
    with pytest.raises(ValueError, match="negative"):
        at(Phase.COPIED).merged(plan(at(Phase.COPIED), 7), position(7), inserted=0, deleted=99)


@given(
    st.sampled_from(Phase),
    st.from_type(TableId),
    st.integers(0, 9),
    st.integers(0, 99),
    st.from_type(Place),
    st.from_type(Position),
    st.from_type(Splits),
)
def test_progress_is_read_back_from_json(
    phase: Phase, table: TableId, wave: int, rows: int, covered_from: Place, where: Position, splits: Splits
) -> None:
    """In every phase, with every kind of position and splits that the phase allows."""
    if phase in {Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED}:
        splits = Splits((Split(KeyRange(), merged_at=where.place),))
    elif phase is Phase.COPIED and not splits.complete:
        splits = Splits((Split(KeyRange(), low=where.place, high=where.place),))
    at_all = where if splits.stop else None
    progress = Progress(table, "f00d", SERVER, 3, covered_from, phase, wave, rows, splits, at_all)
    assert progress_form.from_json(stored(progress)) == progress


@pytest.mark.parametrize("other", [COMPANION_FORMAT + 1, FORMAT - 1])
def test_the_form_of_another_version_is_refused(other: int) -> None:
    """Half understood is not understood."""
    with pytest.raises(StateUnreadable, match=f"of format {other}, this version reads {COMPANION_FORMAT}"):
        progress_form.from_json(stored(at(Phase.LEVEL)) | {"format": other})


def test_progress_from_before_values_were_counted_has_none() -> None:
    """An older copy goes on."""
    doc = stored(at(Phase.PUBLISHED))
    del doc["nulled"]
    assert progress_form.from_json(doc).nulled == 0


@pytest.mark.parametrize("part", sorted(progress_form.to_json(NEW).keys() - {"nulled"}))
@pytest.mark.parametrize("phase", [Phase.COPYING, Phase.PUBLISHED])
def test_progress_without_one_of_its_parts_is_unreadable(phase: Phase, part: str) -> None:
    """Nothing is guessed."""
    doc = stored(at(phase))
    del doc[part]
    with pytest.raises(StateUnreadable, match="not a table's progress"):
        progress_form.from_json(doc)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("table", "orders"),
        ("table", 7),
        ("epoch", None),
        ("covered_from", 7),
        ("covered_from", "7"),
        ("phase", "paused"),
        ("wave", "x"),
        ("rows", -1),
        ("splits", 7),
        ("splits", []),
        ("position", None),
        ("position", "x"),
    ],
)
def test_damaged_progress_is_unreadable(part: str, damage: object) -> None:
    """Whatever is wrong with it, a person decides, not a traceback."""
    with pytest.raises(StateUnreadable, match="not "):
        progress_form.from_json(stored(at(Phase.LEVEL)) | {part: damage})


def test_a_merge_needs_the_spool_from_its_stop_or_from_the_first_watch() -> None:
    """Until a table stands at one stop, any of its splits may need all that was spooled of it."""
    copying = NEW.created().wave_committed((FIRST,), 1)
    assert (NEW.needed_from, copying.needed_from) == (COVERED, COVERED)
    level = copying.wave_committed((Split(KeyRange((5,), None), low=GtidSet(), high=HIGH),), 1)
    assert level.merged(plan(level, 7), position(7), 0, 0).needed_from == position(7).place


def test_no_merge_stops_before_rows_that_may_be_newer() -> None:
    """The highs of chunks and patches, and the stop of merged splits."""
    copying = NEW.created().wave_committed((FIRST,), 1)
    shown = at(Phase.PUBLISHED)
    assert (NEW.least_stop, copying.least_stop) == (COVERED, HIGH)
    assert shown.least_stop == position(7).place
    assert shown.reread_rows([PATCH], COVERED).least_stop == PATCH.high


def test_the_greatest_high_watermark_of_the_chunks_is_kept() -> None:
    """With the history of its binlog: a part of that which is lost later takes the chunk with it."""
    early, late = (replace(position(number), history=History(number)) for number in (2, 3))
    rest = (Split(KeyRange((5,), None), low=GtidSet(), high=HIGH),)
    first = NEW.created().wave_committed((FIRST,), 1, read_to=late)
    second = first.wave_committed(rest, 1, read_to=early)
    assert (first.read_to, second.read_to, first.wave_committed(rest, 1).read_to) == (late, late, late)
    assert progress_form.from_json(stored(second)) == second


def test_a_table_is_published_again_after_each_range_that_is_read_again() -> None:
    """The signal is answered with the last one, and the document that says so stays until it is not needed."""
    first = at(Phase.PUBLISHED).reread_rows([PATCH], COVERED, signals=[4, 6], up_to=(9,))
    assert (first.phase, first.stop, first.reread) == (Phase.COPIED, None, Reread((4, 6), (9,)))
    assert (first.rows, first.uncounted, first.reread_since) == (16, True, COVERED)
    level = first.merged(plan(first, 9), position(9), inserted=1, deleted=0)
    assert (level.reread_since, level.needed_from, level.reread) == (None, position(9).place, first.reread)
    with pytest.raises(ValueError, match="not counted"):
        level.audited()
    shown = level.audited(16).published()
    assert (shown.rows, shown.uncounted) == (16, False)
    late = Patch("late", KeyRange((9,)), GtidSet(), Place(0, 1, 12))
    last = shown.reread_rows([late], position(9).place, signals=[4, 6], last=True)
    assert (last.reread, last.answered) == (None, (4, 6))
    again = last.reread_rows([PATCH], COVERED, signals=[8], last=True, done=[4])
    assert (again.answered, again.patches) == ((6, 8), (late, PATCH))
    for progress in (first, level, shown, last, again):
        assert progress_form.from_json(stored(progress)) == progress


def test_the_spool_keeps_what_was_read_again_needs_and_what_readers_see_needs() -> None:
    """The least of the lows, of the last stop, and of what runs; all of it before the first merge."""
    shown = at(Phase.PUBLISHED)
    early, late = position(5).place, position(9).place
    second, third = replace(PATCH, name="second"), replace(PATCH, name="third")
    first = shown.reread_rows([PATCH], late)
    staged = first.reread_rows([second], early)
    assert first.needed_from == position(7).place
    assert staged.needed_from == early
    assert staged.reread_rows([third], late).needed_from == early
    assert at(Phase.COPIED).reread_rows([PATCH], late).needed_from == COVERED
    assert needed_by(staged, shown) == early
    assert needed_by(shown, None, [late]) == position(7).place
    assert needed_by(shown, None, [COVERED, late]) == COVERED
    with pytest.raises(SpoolGap, match="rows that were read again need it from"):
        replace(shown, covered_from=early).reread_rows([PATCH], COVERED)


def test_a_low_watermark_that_is_a_place_is_not_before_what_each_view_has() -> None:
    """Without GTIDs it is the start of a file, in which the table may have had DDL since."""
    early, watched, late = (Place(0, 1, number) for number in (1, 2, 5))
    copying = replace(NEW.created(), covered_from=watched)
    for low, expected in ((early, watched), (HIGH, HIGH)):
        assert copying.wave_committed((replace(FIRST, low=low),), 1).splits.all[0].low == expected
    shown = at(Phase.PUBLISHED)
    for low, expected in ((early, late), (Place(0, 1, 7), Place(0, 1, 7))):
        assert shown.reread_rows([replace(PATCH, low=low)], late).patches[0].low == expected


def test_a_patch_waits_for_a_merge_that_ends_after_it() -> None:
    """Until then the table stands at no stop, though its splits do."""
    shown = at(Phase.PUBLISHED)
    waiting = shown.reread_rows([PATCH], COVERED, signals=[4], up_to=(9,))
    assert (waiting.stop, waiting.splits.stop, waiting.reread) == (None, position(7).place, Reread((4,), (9,)))
    with pytest.raises(ValueError, match="two patches with one name"):
        waiting.reread_rows([PATCH], COVERED)
    old = waiting.merged(plan(shown, 8), position(8), inserted=0, deleted=0)
    assert (old.phase, old.patches, old.reread_since) == (Phase.COPIED, (PATCH,), COVERED)
    merge = plan(old, 9)
    level = old.merged(merge, position(9), inserted=0, deleted=0)
    assert (level.phase, level.patches, level.needed_from) == (Phase.LEVEL, (), position(9).place)
    with pytest.raises(ValueError, match="planned on other"):
        level.merged(replace(merge, splits=level.splits), position(9), inserted=0, deleted=0)
    assert progress_form.from_json(stored(waiting)) == waiting


def test_a_copy_that_is_started_over_answers_all_that_waited_with_its_last_wave() -> None:
    """Its old rows are gone with the start, and what was answered before stays answered."""
    shown = at(Phase.PUBLISHED).reread_rows([PATCH], COVERED, signals=[2], last=True)
    over = shown.started_over(NEW, signals=[4, 6])
    assert (over.phase, over.rows, over.splits, over.position) == (Phase.COPYING, 0, Splits(), None)
    assert (over.patches, over.uncounted, over.restarts) == ((), False, 1)
    first = over.wave_committed((FIRST,), 10)
    assert (first.rows, first.answered, first.reread) == (10, (2,), Reread((4, 6)))
    last = last_wave(first)
    assert (last.rows, last.answered, last.reread) == (15, (2, 4, 6), None)
    empty = shown.started_over(NEW)
    assert (shown.restarts, empty.restarts, empty.started_over(NEW).restarts) == (0, 1, 2)
    assert empty.reread is None
    for progress in (over, first, last, empty):
        assert progress_form.from_json(stored(progress)) == progress
    for wrong in (shown, replace(NEW, table=TableId("shop", "items"))):
        with pytest.raises(ValueError, match="starts over as it was created"):
            shown.started_over(wrong)


def test_a_gap_is_closed_by_the_last_of_all_rows() -> None:
    """The table has a later position meanwhile. A table whose splits have several positions cannot go over a gap."""
    shown = at(Phase.PUBLISHED)
    over = shown.over_gap(position(99), "beef", position(98).place, signals=[4, 6])
    assert (over.phase, over.stop, over.fingerprint, over.rows) == (
        Phase.LEVEL,
        position(99).place,
        "beef",
        shown.rows,
    )
    assert (over.gap, over.uncounted, over.reread, over.restarts) == (True, True, Reread((4, 6)), 1)
    with pytest.raises(ValueError, match="or have a gap"):
        over.audited(5)
    first = over.reread_rows([], position(99).place, signals=[4, 6], up_to=(7,))
    assert (first.gap, first.reread) == (True, Reread((4, 6), (7,)))
    alone = shown.over_gap(position(99), "beef", COVERED)
    assert alone.reread_rows([], COVERED, up_to=(7,)).reread == Reread((), (7,))
    last = first.reread_rows([], position(99).place, signals=[4, 6], last=True)
    assert (last.gap, last.reread, last.answered, last.audited(5).rows) == (False, None, (4, 6), 5)
    for progress in (over, first, alone, last):
        assert progress_form.from_json(stored(progress)) == progress
    assert (stored(over)["format"], stored(last)["format"]) == (GAP_FORMAT, REREAD_FORMAT)
    partial = at(Phase.COPYING).over_gap(position(99), "beef", COVERED)
    assert (partial.phase, partial.gap, partial.stop, partial.splits.complete) == (
        Phase.LEVEL,
        True,
        position(99).place,
        True,
    )
    for neither in (NEW.created(), shown.reread_rows([PATCH], COVERED)):
        with pytest.raises(ValueError, match="no rows that could be those of one position"):
            neither.over_gap(position(99), "beef", COVERED)


def test_progress_without_re_snapshots_is_stored_as_before() -> None:
    """A version from before them reads it; what it would misread has the next format."""
    shown = at(Phase.PUBLISHED)
    assert stored(shown)["format"] == FORMAT
    assert not {"patches", "reread_since", "reread", "answered", "uncounted", "gap"} & stored(shown).keys()
    assert stored(shown.reread_rows([PATCH], COVERED))["format"] == REREAD_FORMAT
    assert stored(replace(shown, answered=(4,)))["format"] == FORMAT


def test_a_quiet_table_does_not_go_back_and_stays_on_its_server() -> None:
    """Only a later position of the same server can be that of the same rows."""
    shown = at(Phase.PUBLISHED)
    assert shown.unchanged(position(99)).stop == position(99).place
    for wrong, reason in ((position(1), "does not come after"), (replace(position(99), epoch=1), "two servers")):
        with pytest.raises(ValueError, match=reason):
            shown.unchanged(wrong)


def test_what_is_known_of_foreign_keys_goes_with_the_rows() -> None:
    """A merge does not change it. Rows that are read again may move it back, because their views may lack changes."""
    settled = CascadesRead("f00d", Place(0, 1, 7))
    progress = replace(at(Phase.LEVEL), cascades=settled)
    assert merged(progress).cascades == settled
    patch = replace(PATCH, high=Place(0, 1, 9))
    for since, to in ((5, 5), (8, 7)):
        assert progress.reread_rows([patch], Place(0, 1, since)).cascades == replace(settled, to=Place(0, 1, to))
    later = CascadesRead("f00d", Place(0, 1, 8))
    running = progress.reread_rows([patch], Place(0, 1, 8), signals=(3,), up_to=(4,))
    again = running.cascades_read([replace(patch, name="q")], Place(0, 1, 8), later, nulled=1, read_to=position(9))
    assert (again.cascades, again.reread, again.nulled) == (later, Reread((3,), (4,)), running.nulled + 1)
    assert again.patches == (patch, replace(patch, name="q"))
    assert progress_form.from_json(json.loads(json.dumps(progress_form.to_json(again)))) == again
    assert progress.unchanged(position(20)).cascades == replace(settled, to=Place(0, 1, 20))
    assert progress.over_gap(position(7), "f00d", COVERED).cascades is None
    assert progress.over_gap(position(7), "f00d", COVERED, cascades=later).cascades == later


def test_another_server_has_what_was_settled_at_the_position() -> None:
    """And of anything else nobody knows where it is there."""
    progress = at(Phase.LEVEL)
    assert progress.position is not None
    here = CascadesRead("f00d", progress.position.place)
    assert replace(progress, cascades=here).moved(HERE).cascades == CascadesRead("f00d", HERE.place)
    assert replace(progress, cascades=replace(here, to=COVERED)).moved(HERE).cascades is None
    assert progress.moved(HERE).cascades is None


def test_the_spool_keeps_what_changes_of_parents_need() -> None:
    """From where the copy has changes by foreign keys, also that which readers see."""
    progress = at(Phase.LEVEL)
    early = replace(progress, cascades=CascadesRead("f00d", Place(0, 1, 2)))
    assert needed_by(progress, None) == Place(0, 1, 7)
    assert needed_by(early, None) == needed_by(progress, early) == Place(0, 1, 2)
