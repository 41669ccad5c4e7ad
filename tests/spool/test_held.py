"""What is held of a table: the stretch without a gap, over DDL that its copy has followed, up to lost files."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.ddl.alteration import Act, Alteration, Change
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import ChangelogGone
from lakeingest.mysql.source_types import source_type
from lakeingest.spool import archive, changelog
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.followed import Altered
from lakeingest.spool.halts import halts, note_followed
from lakeingest.spool.held import Stretch
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool
from tests.servers.stores import forget_kept
from tests.spool.test_archive import DAY, OTHER, SCHEMA, START, TABLE, grow, held, place, read, rows, segment, spool

__all__ = ["spool"]  # the fixture

ALTERATION = Alteration((Change(Act.ADD, "z", "z"),), statement="ALTER TABLE t ADD z", text="ALTER TABLE t ADD z INT")
WIDER = replace(SCHEMA, columns=(*SCHEMA.columns, Column("z", Kind.INT32, source_type("int"), default=Value(4))))
LIFT = Lift(SCHEMA, WIDER, ("id", None))


def ddl(spool: Spool, number: int) -> Manifest:
    """The segment of this number, which is DDL of the table."""
    return replace(segment(spool, number, rows=0), tables={OTHER: None}, alterations={TABLE: ALTERATION})


def follow(spool: Spool) -> None:
    """The copy is lifted over the last DDL."""
    note_followed(spool, halts(spool, TABLE, place(0))[-1], LIFT, {"z": pa.scalar(4, pa.int32())})


def test_what_is_held_goes_on_over_ddl_that_the_copy_has_followed(spool: Spool) -> None:
    """Before that a reader has to stop there; the parts are in order, and each position leads to the rest."""
    spool.append([segment(spool, 0, other=True), ddl(spool, 1)])
    assert held(spool).stretch(TABLE) == Stretch(place(0), place(1), tuple(held(spool).segments[:1]), ends_watch=True)
    spool.append([segment(spool, 2, other=True)])
    assert held(spool).stretch(TABLE).start == place(2)
    follow(spool)
    for archived in (0, 3):
        spool.forget(place(archived), DAY)
        found = held(spool)
        assert [found.stretch(TABLE).start, found.stretch(TABLE).end] == [place(0), place(3)]
        assert found.definitions(TABLE) == [SCHEMA, WIDER]
        with StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(0)), found.name) as changes:
            before, altered, after = changes.rows()
        assert isinstance(altered, Altered)
        assert not isinstance(before, Altered)
        assert not isinstance(after, Altered)
        assert (altered.alteration, altered.followed.after) == (ALTERATION, WIDER)
        assert altered.followed.fills["z"].as_py() == 4
        assert altered.followed.committed_at == START + timedelta(minutes=1)
        assert [before["id"].to_pylist(), after["id"].to_pylist()] == [rows(range(1)), rows(range(2, 3))]
        for since, count in ((altered.followed.read_to, 1), (ReadTo(place(1)), 2), (ReadTo(place(2)), 1)):
            with StoredChangelog(spool.folder).opened(TABLE, since, found.name) as changes:
                assert len(list(changes.rows())) == count
                assert not list(changes.rows(stop=place(1)))


def test_ddl_stays_a_segment_of_its_own_in_the_archive(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours are put together, up to it and after it."""
    monkeypatch.setattr(archive, "JOIN", 4)
    spool.append([segment(spool, 0, other=True), segment(spool, 1, other=True), ddl(spool, 2)])
    spool.append([ddl(spool, 3), *(segment(spool, number, other=True) for number in range(4, 6))])
    for halt in halts(spool, TABLE, place(0)):
        note_followed(spool, halt, LIFT, {})
    spool.forget(place(6), DAY)
    assert [len(one.alterations) for one in held(spool).segments] == [0, 1, 1, 0]
    with StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(0)), held(spool).name) as changes:
        kinds = [isinstance(one, Altered) for one in changes.rows()]
    assert kinds == [False, True, True, False]


def test_where_a_table_is_not_watched_to_the_end_its_copy_says_what_is_held(spool: Spool) -> None:
    """Readers of the lake see more than the segments have: they were spooled for it once, and are no longer here."""
    spool.append([segment(spool, 0), ddl(spool, 1), replace(segment(spool, 2, rows=0), tables={OTHER: None})])
    found = held(spool)
    assert found.stretch(TABLE, place(1)).end == place(1)
    assert found.stretch(TABLE, place(2)) == Stretch(place(2), place(2), (), ends_watch=True)
    assert found.stretch(OTHER, place(3)).start == place(1)


def test_changes_in_a_file_that_is_lost_are_gone(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names from where on nothing is missing; a reader from there on misses nothing."""
    monkeypatch.setattr(changelog, "_PAUSE_SECONDS", 0.001)
    grow(spool, range(5))
    lost = held(spool).segments[1]
    entry = lost.tables[TABLE]
    assert entry is not None
    (spool.folder / entry[0]).delete()
    forget_kept()
    log = StoredChangelog(spool.folder)
    with (
        pytest.raises(ChangelogGone, match=f"the oldest position is {place(2)}"),
        log.opened(TABLE, ReadTo(place(0)), held(spool).name),
    ):
        pass
    assert read(spool, ReadTo(place(2))) == rows(range(2, 5))
    moments = [START + timedelta(minutes=minutes) for minutes in (0.5, 1.5, 3.5)]
    assert [log.place_of_time(held(spool), one) for one in moments] == [
        segment_place(0),
        segment_place(1),
        segment_place(3),
    ]
    (spool.folder / lost.transactions).delete()
    forget_kept()
    log = StoredChangelog(spool.folder)
    assert [log.place_of_time(held(spool), one) for one in moments] == [None, None, None]
    assert log.place_of_gtids(held(spool), held(spool).end.gtids or lost.gtids) == place(5)
    assert log.place_of_gtids(held(spool), held(spool).gtids | held(spool).segments[0].gtids) is None


def segment_place(number: int) -> Place:
    """The place of the transaction in a segment."""
    return replace(place(number), pos=number * 10 + 5)


def test_the_time_of_a_place_is_that_of_the_last_transaction_up_to_it(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is held, it is that of the last one before the spool, if that is known."""
    monkeypatch.setattr(changelog, "_PAUSE_SECONDS", 0.001)
    grow(spool, range(5))
    log, found = StoredChangelog(spool.folder), held(spool)
    minutes = {place(5): 4, segment_place(2): 2, replace(segment_place(2), pos=24): 1, place(1): 0}
    for at, minute in minutes.items():
        assert log.time_of(found, at) == round((START + timedelta(minutes=minute)).timestamp() * 1_000_000)
    assert log.time_of(found, place(0)) is None
    last = Committed("binlog.000007", 4, None, 77)
    opened = replace(found.opened, history=History(last=last))
    assert log.time_of(replace(found, opened=opened, segments=()), opened.place) == 77
    assert log.time_of(replace(found, opened=opened, segments=()), place(0)) is None
    (spool.folder / found.segments[1].transactions).delete()
    forget_kept()
    assert StoredChangelog(spool.folder).time_of(found, place(2)) is None
    assert log.time_of(found, place(3)) == round((START + timedelta(minutes=2)).timestamp() * 1_000_000)
