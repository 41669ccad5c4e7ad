"""Follows the events of a binlog from transaction to transaction, as long as they are what they mostly are.

The kernel knows five signs of `grammar.NEXT`: a GTID, BEGIN, the TABLE_MAP of a table that was seen before, rows,
and the XID that commits. Whatever it does not know, or finds wrong, it leaves to `segment`, event by event: there
the whole grammar is, and every error.
"""

import enum

import numpy as np

from lakeingest.mysql.wire.compiled import kernel, load64, number, step
from lakeingest.mysql.wire.events import (
    ACTIONS,
    ARTIFICIAL,
    HAS_ORIGINAL,
    LENGTHS_END,
    STANDALONE,
    TIMES_END,
    Action,
    Type,
)
from lakeingest.mysql.wire.framing import HEADER
from lakeingest.mysql.wire.grammar import State
from lakeingest.mysql.wire.walk import packed


class At(enum.IntEnum):
    """Places in the array that says where the reader is."""

    STATE = 0  # grammar.State
    POS = 1  # in the file: the end of the last event
    START = 2  # up to here in this file, events are passed over
    STOP = 3  # the segment's end, if it is in this file
    BEGUN = 4  # where the transaction's GTID event begins
    ENDS = 5  # where it says that it ends; 0 when it does not
    ROWS = 6  # row events in the arrays
    TRANSACTIONS = 7  # transactions in the arrays, with the open one
    HAS_ROWS = 8  # whether the transaction has rows of a copied table
    COUNT = 9  # all transactions so far
    GTIDS = 10  # whether each transaction must have a GTID


class Row(enum.IntEnum):
    """Columns of the array of row events of copied tables."""

    START = 0  # in the bytes
    STOP = 1  # without a checksum
    TABLE = 2
    TRANSACTION = 3
    POS = 4  # where it begins in the file


class Transaction(enum.IntEnum):
    """Columns of the array of transactions."""

    SOURCE = 0  # −1 without a GTID
    NUMBER = 1
    POS = 2  # of its place: where it ends in the file
    COMMITTED_AT = 3


class Map(enum.IntEnum):
    """Columns of the hash table of TABLE_MAP events; a place with size 0 is free."""

    ID = 0
    START = 1  # of its bytes without the header
    SIZE = 2
    TABLE = 3  # −1 when it is not copied
    SEEN = 4  # the number (At.COUNT) of the transaction that it was last seen in


_STATE, _POS, _START, _STOP, _BEGUN, _ENDS, _ROWS, _TRANSACTIONS, _HAS_ROWS, _COUNT, _GTIDS = (int(i) for i in At)
_OUTSIDE, _AFTER_GTID, _OPEN, _PASSING = (int(s) for s in (State.OUTSIDE, State.BEGUN, State.OPEN, State.PASSING))
_GTID, _QUERY, _TABLE, _ROW, _COMMIT, _PASS, _DOMAIN_GTID = 1, 2, 3, 4, 5, 6, 7
_CODES = {
    Action.QUERY: _QUERY,
    Action.TABLE: _TABLE,
    Action.ROWS: _ROW,
    Action.COMMIT: _COMMIT,
    Action.PASS: _PASS,
}
_GTID_BYTES = HEADER + 49  # up to and with its commit time; the length of its transaction follows
_GTID_TYPE = int(Type.GTID)
_DOMAIN_GTID_BYTES = 13  # number, domain, flags
_BEGIN = int.from_bytes(b"BEGIN", "little")


def _codes() -> np.ndarray:
    """What the kernel does with each type of event; 0: it does not know it."""
    codes = np.zeros(256, np.int64)
    for type_, action in ACTIONS.items():
        codes[type_] = _CODES.get(action, 0)
    codes[Type.GTID] = codes[Type.ANONYMOUS_GTID] = _GTID
    codes[Type.DOMAIN_GTID] = _DOMAIN_GTID
    return codes


_CODE = _codes()


@kernel
def follow(
    data: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    first: int,
    last: int,
    checksum: int,
    inner: int,
    at: np.ndarray,
    maps: np.ndarray,
    map_bytes: np.ndarray,
    sources: np.ndarray,
    rows: np.ndarray,
    transactions: np.ndarray,
) -> int:
    """Follow the events from `first` up to `last`; which event is not followed, or `last`.

    `checksum` is how many bytes of an event are its checksum. `inner` events stand in a payload and move no position.
    `sources` has each server's two halves of its UUID (of a MariaDB: domain and server), and the last range of numbers
    of its transactions that are to be passed over. `rows` and `transactions` get what is found.
    """
    for event in range(first, last):
        start, stop = offset[event], offset[event] + size[event] - checksum
        end = at[_POS]
        if not inner:
            end += size[event]
            flags = data[start + 17]
            said = number(data, start + 13, 4)
            is_within = said == 0 and at[_STATE] == _OPEN and at[_ENDS] == 0  # as `segment` has it
            if (said != end & 0xFFFFFFFF and not is_within) or flags & ARTIFICIAL or at[_POS] < at[_START]:
                return event
            if end >= at[_STOP]:
                return event
        if at[_STATE] == _PASSING:
            if end > at[_ENDS]:
                return event
            if end == at[_ENDS]:
                at[_STATE] = _OUTSIDE
            at[_POS] = end
            continue
        code = _CODE[data[start + 4]]
        if code == _ROW:
            known = _row(data, start, stop, at, maps, rows)
        elif code == _TABLE:
            known = at[_STATE] == _OPEN and _table(data, start, stop, at, maps, map_bytes)
        elif code == _COMMIT:
            known = at[_STATE] == _OPEN and (inner != 0 or end == at[_ENDS] or at[_ENDS] == 0)
            if known:
                at[_STATE] = _OUTSIDE
        elif code == _QUERY:
            known = at[_STATE] == _AFTER_GTID and _is_begin(data, start + HEADER, stop)
            if known:
                at[_STATE] = _OPEN
        elif code == _GTID:
            known = inner == 0 and _gtid(data, start, stop, at, sources, transactions)
        elif code == _DOMAIN_GTID:
            known = inner == 0 and _domain_gtid(data, start, stop, at, sources, transactions)
        else:
            known = code == _PASS
        if not known:
            return event
        at[_POS] = end
    return last


@step
def _gtid(
    data: np.ndarray, start: int, stop: int, at: np.ndarray, sources: np.ndarray, transactions: np.ndarray
) -> bool:
    if at[_STATE] != _OUTSIDE or stop - start <= _GTID_BYTES or at[_TRANSACTIONS] == len(transactions):
        return False
    source, is_passed = -1, False
    if data[start + 4] == _GTID_TYPE:
        first, second = load64(data, start + HEADER + 1), load64(data, start + HEADER + 9)
        source = _known(sources, first, second)
        if source < 0 or load64(data, start + HEADER + 17) < sources[source, 2]:
            return False
        is_passed = load64(data, start + HEADER + 17) <= sources[source, 3]
    elif at[_GTIDS]:
        return False
    where = start + HEADER + 42
    committed_at = number(data, where, 7)
    where += 7
    if committed_at & HAS_ORIGINAL:
        committed_at &= ~HAS_ORIGINAL
        original = number(data, where, 7)
        committed_at = original or committed_at
        where += 7
    if where >= stop or committed_at >= TIMES_END:
        return False
    taken, length = packed(data, where)
    if not 0 < length < LENGTHS_END or where + taken > stop:
        return False
    if is_passed:
        at[_ENDS] = at[_POS] + length
        at[_STATE] = _PASSING
        return True
    number_ = load64(data, start + HEADER + 17) if source >= 0 else 0
    _begin(at, transactions, source, number_, at[_POS] + length, committed_at)
    at[_ENDS] = at[_POS] + length
    at[_STATE] = _AFTER_GTID
    return True


@step
def _domain_gtid(
    data: np.ndarray, start: int, stop: int, at: np.ndarray, sources: np.ndarray, transactions: np.ndarray
) -> bool:
    body = start + HEADER
    if at[_STATE] != _OUTSIDE or stop - body < _DOMAIN_GTID_BYTES or at[_TRANSACTIONS] == len(transactions):
        return False
    source = _known(sources, number(data, body + 8, 4), number(data, start + 5, 4))
    if source < 0 or load64(data, body) <= 0:
        return False
    _begin(at, transactions, source, load64(data, body), at[_POS] + 1, number(data, start, 4) * 1_000_000)
    at[_ENDS] = 0
    at[_STATE] = _AFTER_GTID if data[body + 12] & STANDALONE else _OPEN
    return True


@step
def _known(sources: np.ndarray, first: int, second: int) -> int:
    """The number of the source of these two halves, −1 when it is new."""
    found = -1
    for candidate in range(len(sources)):
        if sources[candidate, 0] == first and sources[candidate, 1] == second:
            found = candidate
    return found


@step
def _begin(at: np.ndarray, transactions: np.ndarray, source: int, number_: int, pos: int, committed_at: int) -> None:
    """Note a transaction that begins here."""
    index = at[_TRANSACTIONS]
    transactions[index, 0] = source
    transactions[index, 1] = number_
    transactions[index, 2] = pos
    transactions[index, 3] = committed_at
    at[_TRANSACTIONS] += 1
    at[_COUNT] += 1
    at[_HAS_ROWS] = 0
    at[_BEGUN] = at[_POS]


@step
def _is_begin(data: np.ndarray, body: int, stop: int) -> bool:
    """Whether a QUERY event is the one with which a transaction opens."""
    if stop - body < 13:
        return False
    text = body + 13 + number(data, body + 11, 2) + data[body + 8] + 1
    return stop - text == 5 and number(data, text, 5) == _BEGIN


@kernel
def map_place(maps: np.ndarray, table_id: int) -> int:
    """Where a table id is in the hash table, or the free place where it would be. One is always free."""
    place = table_id % len(maps)
    while maps[place, 2] and maps[place, 0] != table_id:
        place = (place + 1) % len(maps)
    return place


@step
def _table(data: np.ndarray, start: int, stop: int, at: np.ndarray, maps: np.ndarray, map_bytes: np.ndarray) -> bool:
    """Whether this very TABLE_MAP was seen before."""
    body = start + HEADER
    if stop - body < 8:
        return False
    place = map_place(maps, number(data, body, 6))
    if maps[place, 2] != stop - body:
        return False
    known = maps[place, 1]
    for i in range(0, stop - body, 8):
        left = stop - body - i
        if left >= 8:
            if load64(data, body + i) != load64(map_bytes, known + i):
                return False
        elif number(data, body + i, left) != number(map_bytes, known + i, left):
            return False
    maps[place, 4] = at[_COUNT]
    return True


@step
def _row(data: np.ndarray, start: int, stop: int, at: np.ndarray, maps: np.ndarray, rows: np.ndarray) -> bool:
    if at[_STATE] != _OPEN or stop - start < HEADER + 8:
        return False
    place = map_place(maps, number(data, start + HEADER, 6))
    if maps[place, 2] == 0 or maps[place, 4] != at[_COUNT]:
        return False
    if maps[place, 3] >= 0:
        if at[_ROWS] == len(rows):
            return False
        index = at[_ROWS]
        rows[index, 0] = start
        rows[index, 1] = stop
        rows[index, 2] = maps[place, 3]
        rows[index, 3] = at[_TRANSACTIONS] - 1
        rows[index, 4] = at[_POS]
        at[_ROWS] += 1
        at[_HAS_ROWS] = 1
    return True
