"""How copies are continued, as tables of cases: what the spool and the source say, and what is decided by it."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from lakeingest.core.binlog.position import FilePosition, GtidSet, Place, Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.resuming import Continued, Stored, resume
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Patch
from lakeingest.core.waves.splits import Split
from lakeingest.core.waves.wave import MergePlan
from lakeingest.errors import BinlogGone, LakeIngestError, UnsupportedEvent

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
A, B = TableId("d", "a"), TableId("d", "b")


def at(byte: int) -> Position:
    """A byte of the first binlog file."""
    return Position(SERVER, 0, FilePosition("binlog.000001", byte), None)


def empty(table: TableId, byte: int) -> Progress:
    """An empty copy that the spool watches from this byte on."""
    return Progress(table, "f00d", SERVER, 0, at(byte).place, position=at(byte)).created()


def partial(table: TableId, byte: int, read_to: int) -> Progress:
    """A copy with a chunk, whose high watermark is `read_to`."""
    chunk = Split(KeyRange(None, (5,)), low=at(byte).place, high=at(read_to).place)
    return empty(table, byte).wave_committed((chunk,), 1, read_to=at(read_to))


def level(table: TableId, byte: int) -> Progress:
    """A complete copy that is merged to this byte."""
    chunk = Split(KeyRange(None, None), low=at(4).place, high=at(4).place)
    copied = empty(table, 4).wave_committed((chunk,), 1, read_to=at(4))
    return copied.merged(MergePlan(copied.splits, (), at(byte).place), at(byte), inserted=0, deleted=0)


def reread(table: TableId, byte: int, read_to: int) -> Progress:
    """A complete copy with a patch that waits for a merge up to `read_to`."""
    patch = Patch("p", KeyRange((1,), (9,)), at(byte).place, at(read_to).place)
    return level(table, byte).reread_rows([patch], at(byte).place, signals=[4], read_to=at(read_to))


def patched(table: TableId, byte: int, read_to: int) -> Progress:
    """A copy whose chunks are read but not merged, and with a patch; all were read up to `read_to`."""
    chunks = (
        Split(KeyRange(None, (5,)), at(byte).place, at(byte).place),
        Split(KeyRange((5,)), at(byte).place, at(read_to).place),
    )
    patch = Patch("p", KeyRange((1,), (3,)), at(byte).place, at(read_to).place)
    copied = empty(table, byte).wave_committed(chunks, 1, read_to=at(read_to))
    return copied.reread_rows([patch], at(byte).place, signals=[4], read_to=at(read_to))


class Facts:
    """What the source says: from which byte on it has binlog, to which byte, and what it cannot replay."""

    def __init__(self, first: int = 0, last: int = 1_000, *, unreadable: Collection[TableId] = ()) -> None:
        self._first, self._last, self._unreadable = first, last, unreadable

    def binlog_gone(self, position: Position) -> LakeIngestError | None:
        """Not between its first and its last byte."""
        known = self._first <= position.at.pos <= self._last
        return None if known else BinlogGone(f"gone: {position.at.pos}")

    def contradicts(self, position: Position) -> LakeIngestError | None:
        """The same, in other words."""
        return None if self.binlog_gone(position) is None else BinlogGone(f"contradicted: {position.at.pos}")

    def unreadable(self, table: TableId, since: Position) -> LakeIngestError | None:
        """Of these tables."""
        return UnsupportedEvent(f"{table} since {since.at.pos}") if table in self._unreadable else None


def stored(position: int, covers: Collection[TableId], doubts: Collection[TableId] = ()) -> Stored:
    """A spool that was opened at byte 4."""
    return Stored(at(4), at(position), covers, doubts)


def decided(found: Continued) -> tuple[str, tuple[TableId, ...], Mapping[TableId, str]]:
    """The spool (kept, now, or the byte at which a new one begins), the copies to begin again, and the failed ones."""
    spool = "kept" if found.keeps_spool else "now" if found.begins is None else str(found.begins.at.pos)
    return spool, found.again, {table: str(error) for table, error in found.failed.items()}


SPOOL_LOST = Facts(last=50)


@pytest.mark.parametrize(
    ("copied", "spool", "source", "expected"),
    [
        # no spool: a new one begins at the first position, or now
        ([], None, Facts(), ("now", (), {})),
        ([level(A, 20), level(B, 30)], None, Facts(), ("20", (), {})),
        ([level(A, 20), level(B, 30)], None, Facts(25), ("30", (), {A: "gone: 20"})),
        ([empty(A, 20)], None, Facts(), ("20", (), {})),
        ([partial(A, 20, 40)], None, Facts(), ("20", (), {})),
        ([partial(A, 20, 40)], None, Facts(last=30), ("now", (A,), {})),
        ([replace(partial(A, 20, 40), position=None)], None, Facts(), ("now", (A,), {})),
        (
            [reread(A, 20, 60), level(B, 30)],
            None,
            SPOOL_LOST,
            ("30", (), {A: f"rows of {A} were read again in a lost part of the binlog: gone: 60"}),
        ),
        # the spool goes on with the tables that it covers
        ([], stored(70, []), Facts(), ("now", (), {})),
        ([level(A, 20), level(B, 30)], stored(70, [A, B]), Facts(), ("kept", (), {})),
        ([level(A, 20), level(B, 30)], stored(70, [A, B], [A]), Facts(), ("kept", (), {})),
        ([level(A, 20), level(B, 30)], stored(70, [A, B], [A]), Facts(25), ("kept", (), {A: "contradicted: 20"})),
        ([empty(A, 20)], stored(70, [A]), Facts(), ("20", (), {})),
        ([level(A, 20), partial(B, 20, 90)], stored(70, [A, B]), Facts(), ("kept", (), {})),
        ([level(A, 20), partial(B, 20, 90)], stored(70, [A, B]), Facts(last=80), ("kept", (B,), {})),
        # a copy that is started over does not fail because of rows that were read again for it
        ([level(A, 20), patched(B, 20, 90)], stored(70, [A, B]), Facts(last=80), ("kept", (B,), {})),
        # tables that it does not cover: a new spool reaches back to them, unless they cannot go on
        ([level(A, 60), level(B, 30)], stored(70, [A]), Facts(), ("30", (), {})),
        ([level(A, 60), level(B, 30)], stored(70, [A]), Facts(40), ("kept", (), {B: "gone: 30"})),
        (
            [level(A, 60), level(B, 30)],
            stored(70, [A]),
            Facts(unreadable=[B]),
            ("kept", (), {B: f"{B} since 30"}),
        ),
        ([level(A, 60), partial(B, 30, 40)], stored(70, [A]), Facts(), ("kept", (B,), {})),
        ([partial(A, 20, 40), level(B, 30)], stored(70, [A]), Facts(), ("4", (), {})),
        # the source lost the spool's position: what was read after the last merge does not matter
        ([level(A, 20)], stored(70, [A]), SPOOL_LOST, ("20", (), {})),
    ],
)
def test_how_copies_are_continued(
    copied: list[Progress], spool: Stored | None, source: Facts, expected: tuple[str, tuple[TableId, ...], object]
) -> None:
    """Nobody asked to read a table again."""
    assert decided(resume({one.table: one for one in copied}, spool, source)) == expected


@pytest.mark.parametrize(
    ("copied", "spool", "source", "error"),
    [
        ([level(A, 20)], None, Facts(25), "gone: 20"),
        ([level(A, 70)], stored(70, [A]), SPOOL_LOST, "gone: 70"),
        ([level(A, 20)], stored(70, [A], [A]), Facts(25), "contradicted: 20"),
    ],
)
def test_the_reason_is_raised_if_no_copy_can_go_on(
    copied: list[Progress], spool: Stored | None, source: Facts, error: str
) -> None:
    """Unless somebody asked to read one of the tables again: then its copy is started over."""
    known = {one.table: one for one in copied}
    with pytest.raises(BinlogGone, match=error):
        resume(known, spool, source)
    found = resume(known, spool, source, [A])
    assert str(found.failed[A]).startswith(("gone", "contradicted"))


def test_a_spool_is_kept_for_copies_that_cannot_be_loaded() -> None:
    """They may need it; without a chunk, a new one is as good."""
    assert resume({}, stored(70, []), Facts(), unknown=True).keeps_spool
    assert not resume({A: empty(A, 20)}, stored(70, [A]), Facts()).keeps_spool


def test_places_order_the_positions_of_a_server() -> None:
    """Whether they have GTIDs or not."""
    other = replace(level(B, 30), position=replace(at(30), gtids=GtidSet()))
    assert resume({A: level(A, 40), B: other}, None, Facts()).begins == other.position
    assert isinstance(at(4).place, Place)
