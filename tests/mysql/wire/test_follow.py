import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from lakeingest.core.binlog.position import DomainGtid, Gtid, GtidSet
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.wire import events
from lakeingest.mysql.wire.event_buffer import GtidPrefixes
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, Type
from lakeingest.mysql.wire.follow import ReaderState, Row, Transaction, follow
from lakeingest.mysql.wire.framing import CHECKSUM_BYTES, HEADER
from lakeingest.mysql.wire.grammar import NEXT, Sign, State, Watched, begun_with, sign_of
from lakeingest.mysql.wire.maps import Maps
from tests.mysql.wire.steps import array
from tests.mysql.wire.stream import (
    SCHEMA,
    SOURCE,
    START,
    XID,
    domain_gtid_body,
    event,
    gtid_body,
    payload_body,
    query_body,
    rows_body,
    table_map_body,
    tagged_gtid_body,
)

_TRANSACTION = 3  # its number: the transaction that is open, and that the known TABLE_MAP event was seen in
_LENGTH = 5000  # of a transaction
_SKIP = f"{SOURCE}:1-5"
_KNOWN, _UNKNOWN = 5, 6  # table ids
_XID = "X'61',X'',1"

STATEMENTS = (
    "BEGIN",
    "BEGINS",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT `a`",
    f"XA START {_XID}",
    f"XA END {_XID}",
    f"XA COMMIT {_XID}",
    f"XA ROLLBACK {_XID}",
    "CREATE TABLE t (id INT)",
    "ALTER TABLE shop.orders ADD COLUMN a INT",
    "INSERT INTO t VALUES (1)",
)

# The events of the five signs that the kernel knows, as servers usually write them.
USUAL: Mapping[str, tuple[int, bytes]] = {
    "GTID": (Type.GTID, gtid_body(9, _LENGTH)),
    "MariaDB's GTID": (Type.DOMAIN_GTID, domain_gtid_body(9)),
    "MariaDB's GTID of one statement": (Type.DOMAIN_GTID, domain_gtid_body(9, is_standalone=True)),
    "BEGIN": (Type.QUERY, query_body("BEGIN")),
    "a known TABLE_MAP": (Type.TABLE_MAP, table_map_body(_KNOWN, "shop", "orders")),
    "inserted rows": (Type.WRITE_ROWS, rows_body(_KNOWN, 1)),
    "deleted rows of version 1": (Type.DELETE_ROWS_V1, rows_body(_KNOWN, 1)),
    "XID": (Type.XID, XID),
}

ANY: Mapping[str, tuple[int, bytes]] = {
    **USUAL,
    **{text: (int(Type.QUERY), query_body(text)) for text in STATEMENTS[1:]},
    "a GTID to skip": (Type.GTID, gtid_body(4, _LENGTH)),
    "no GTID": (Type.ANONYMOUS_GTID, gtid_body(0, _LENGTH)),
    "a GTID with a tag": (Type.GTID_TAGGED, tagged_gtid_body(9, "tag", _LENGTH)),
    "a GTID without a length": (Type.GTID, gtid_body(9)),
    "MariaDB's GTID of another domain": (Type.DOMAIN_GTID, domain_gtid_body(9, domain=7)),
    "an unknown TABLE_MAP": (Type.TABLE_MAP, table_map_body(_UNKNOWN, "shop", "orders")),
    "a TABLE_MAP of another table": (Type.TABLE_MAP, table_map_body(_KNOWN, "shop", "others")),
    "rows without their TABLE_MAP": (Type.UPDATE_ROWS, rows_body(_UNKNOWN, 1)),
    "XA PREPARE": (Type.XA_PREPARE, b"\0" + XID),
    "a payload": (Type.TRANSACTION_PAYLOAD, payload_body(event(Type.XID, XID, checksum=False))),
    **{f"type {type_}": (type_, bytes(60)) for type_ in range(256)},
}

Surroundings = tuple[bool, int, bool]  # whether the event is in a payload, where its transaction ends, gtid_mode


def signs_of(raw: bytes) -> list[Sign] | None:
    """The signs of an event for NEXT, in order; None for one that is refused or has none, [] for one that may pass."""
    parsed = Event.from_data(raw)
    simple = {Action.FILE: Sign.FILE, Action.TABLE: Sign.ROWS, Action.ROWS: Sign.ROWS, Action.COMMIT: Sign.COMMIT}
    try:
        match ACTIONS.get(parsed.type):
            case None | Action.PAYLOAD:
                return None
            case Action.PASS:
                return []
            case Action.PREPARE:
                return [Sign.XA_PREPARE]
            case Action.QUERY:
                return [sign_of(parsed, Watched({SCHEMA.table: SCHEMA}), START, has_rows=False)]
            case Action.GTID:
                also = begun_with(events.read_gtid(parsed))
                return [Sign.GTID] if also is None else [Sign.GTID, also]
            case action:
                return [simple[action]]
    except (Damaged, UnsupportedEvent):
        return None


def derived(state: State, raw: bytes) -> State | None:
    """The state after an event, by NEXT alone; None where NEXT does not allow the event."""
    signs = signs_of(raw)
    for sign in signs or ():
        if (state, sign) not in NEXT:
            return None
        state = NEXT[state, sign]
    return None if signs is None else state


def made(kind: tuple[int, bytes], *, inner: bool) -> bytes:
    """The bytes of an event as the kernel gets it, which ends where it says."""
    type_, body = kind
    size = HEADER + len(body) + (0 if inner else CHECKSUM_BYTES)
    return event(type_, body, START.pos + size, checksum=not inner)


def bare(raw: bytes, *, inner: bool) -> bytes:
    """An event without its checksum."""
    return raw if inner else raw[:-CHECKSUM_BYTES]


def kernel_after(state: State, raw: bytes, surroundings: Surroundings) -> State | None:
    """The state in which the kernel leaves the reader after it has followed an event; None if it leaves the event.

    An event that it leaves has changed neither the state nor the position, so that `segment` finds both as they were.
    """
    inner, ends, gtids = surroundings
    maps, prefixes = Maps(), GtidPrefixes(GtidSet.parse(_SKIP))
    maps.add(_KNOWN, table_map_body(_KNOWN, "shop", "orders"), 0, _TRANSACTION)
    prefixes.index_of(Gtid(SOURCE, 1))
    prefixes.index_of(DomainGtid(0, 1, 1))
    reader = np.zeros(len(ReaderState), np.int64)
    reader[ReaderState.STATE], reader[ReaderState.POS], reader[ReaderState.ENDS] = state, START.pos, ends
    reader[ReaderState.STOP], reader[ReaderState.GTIDS], reader[ReaderState.COUNT] = 1 << 40, gtids, _TRANSACTION
    reader[ReaderState.TRANSACTIONS] = state is not State.OUTSIDE
    before = reader.copy()
    done = follow(
        array(raw),
        np.zeros(1, np.int64),
        np.full(1, len(raw), np.int64),
        0,
        1,
        0 if inner else CHECKSUM_BYTES,
        int(inner),
        reader,
        maps.entries,
        maps.data,
        prefixes.table,
        np.zeros((4, len(Row)), np.int64),
        np.zeros((4, len(Transaction)), np.int64),
    )
    if done:
        assert reader[ReaderState.POS] == START.pos + (0 if inner else len(raw))
        return State(reader[ReaderState.STATE])
    assert reader.tolist() == before.tolist()
    return None


def all_surroundings(raw: bytes) -> list[Surroundings]:
    """A transaction that does not say where it ends, ends with this event, before it, or after it."""
    end = START.pos + len(raw)
    return list(itertools.product((False, True), (0, end, end - 1, end + 100), (False, True)))


@pytest.mark.parametrize("state", [state for state in State if state is not State.PASSING])
def test_nothing_is_followed_but_as_the_grammar_says(state: State) -> None:
    """For each kind of event, wherever it stands: the kernel moves to the state of NEXT, or leaves the event."""
    followed = set()
    for name, kind in ANY.items():
        for surroundings in all_surroundings(made(kind, inner=False)):
            raw = made(kind, inner=surroundings[0])
            after = kernel_after(state, raw, surroundings)
            if after is not None:
                followed.add(name)
                expected = derived(state, bare(raw, inner=surroundings[0]))
                if name == "a GTID to skip" and expected is State.BEGUN:
                    expected = State.PASSING
                assert after is expected, (name, surroundings)
    assert followed, state  # events that may stand anywhere, at least


@pytest.mark.parametrize("state", [state for state in State if state is not State.PASSING])
@pytest.mark.parametrize("name", USUAL)
def test_usual_events_are_followed_where_the_grammar_allows_them(state: State, name: str) -> None:
    """All of them, so that the fast path stays fast; only rows of a prepared transaction are left to `segment`."""
    raw = made(USUAL[name], inner=False)
    ends = START.pos + len(raw) if name == "XID" else START.pos + _LENGTH
    expected = derived(state, bare(raw, inner=False))
    if state is State.PREPARING:
        assert expected in {None, State.PREPARING}
        expected = None
    assert kernel_after(state, raw, (False, ends, True)) is expected


def test_the_usual_events_have_the_five_signs_of_the_kernel() -> None:
    """Each of them has a transition in NEXT that the tests above have seen."""
    usual = [signs_of(bare(made(kind, inner=False), inner=False)) for kind in USUAL.values()]
    assert {sign for signs in usual for sign in signs or ()} == {Sign.GTID, Sign.BEGIN, Sign.ROWS, Sign.COMMIT}


def test_a_commit_is_followed_only_where_its_transaction_ends() -> None:
    """Where the GTID event says another place, `segment` finds the damage."""
    raw = made(USUAL["XID"], inner=False)
    end = START.pos + len(raw)
    found = {ends - end: kernel_after(State.OPEN, raw, (False, ends, True)) for ends in range(end - 9, end + 10)}
    assert found == {distance: State.OUTSIDE if distance == 0 else None for distance in range(-9, 10)}


def test_a_skipped_transaction_is_passed_up_to_its_end() -> None:
    """Whatever its events are: none has a meaning, and none crosses the place that the GTID event says."""
    for name, kind in ANY.items():
        raw = made(kind, inner=False)
        end = START.pos + len(raw)
        found = [kernel_after(State.PASSING, raw, (False, ends, True)) for ends in (end + 100, end, end - 1)]
        assert found == [State.PASSING, State.OUTSIDE, None], name
