"""Follows the events of a binlog from transaction to transaction: the fast path for the usual events.

The kernel knows five signs of `grammar.NEXT`: a GTID, BEGIN, the TABLE_MAP of a table that was seen before, rows,
and the XID that commits. It leaves every other event, and every event that seems wrong, to `segment`, which knows the
whole grammar and raises the errors.
"""

import enum

import numpy as np

from lakeingest.mysql.wire.compiled import kernel, load64, number, step
from lakeingest.mysql.wire.events import (
    ACTIONS,
    ARTIFICIAL,
    HAS_ORIGINAL,
    LENGTHS_END,
    LOGS_CASCADES,
    PREPARED,
    ROW_FLAGS,
    STANDALONE,
    TIMES_END,
    Action,
    Type,
)
from lakeingest.mysql.wire.framing import HEADER
from lakeingest.mysql.wire.grammar import State
from lakeingest.mysql.wire.walk import packed


class ReaderState(enum.IntEnum):
    """Places in the array that holds the state of the reader."""

    STATE = 0  # grammar.State
    POS = 1  # in the file: the end of the last event
    START = 2  # events that end here or before, in this file, are skipped
    STOP = 3  # the segment's end, if it is in this file
    BEGUN = 4  # where the transaction's GTID event begins
    ENDS = 5  # where the transaction ends, as its GTID event says; 0 when it does not say so
    ROWS = 6  # row events in the arrays
    TRANSACTIONS = 7  # transactions in the arrays, with the open one
    HAS_ROWS = 8  # whether the transaction has rows of a copied table
    COUNT = 9  # all transactions so far
    GTIDS = 10  # whether each transaction must have a GTID
    UNMARKED = 11  # whether a row event lacks the flag which says that changes by foreign keys are row events, too


class Row(enum.IntEnum):
    """Columns of the array of row events of copied tables."""

    START = 0  # of the event, in the buffer
    STOP = 1  # of the event, without its checksum
    TABLE = 2
    TRANSACTION = 3
    POS = 4  # of the event, in the file


class Transaction(enum.IntEnum):
    """Columns of the array of transactions."""

    PREFIX = 0  # −1 without a GTID
    NUMBER = 1
    POS = 2  # in the file: where it ends; MariaDB: where it begins, plus 1
    COMMITTED_AT = 3


class Prefix(enum.IntEnum):
    """Columns of the array of GTID prefixes; a prefix is the part of a GTID before its number."""

    FIRST = 0  # the first half of the UUID; MariaDB: the domain
    SECOND = 1  # the second half of the UUID; MariaDB: the server id
    LEAST = 2  # the range of numbers to skip: its first number
    GREATEST = 3  # and its last one


class Map(enum.IntEnum):
    """Columns of the hash table of TABLE_MAP events; an entry with size 0 is free."""

    ID = 0
    START = 1  # of its bytes without the header
    SIZE = 2
    TABLE = 3  # the number of the table; −1 when it is not copied
    SEEN = 4  # the number (ReaderState.COUNT) of the transaction in which it was seen last


_STATE, _POS, _START, _STOP, _BEGUN, _ENDS, _ROWS, _TRANSACTIONS, _HAS_ROWS, _COUNT, _GTIDS, _UNMARKED = (
    int(i) for i in ReaderState
)
_ROW_START, _ROW_STOP, _ROW_TABLE, _ROW_TRANSACTION, _ROW_POS = (int(i) for i in Row)
_PREFIX, _NUMBER, _PLACE, _COMMITTED_AT = (int(i) for i in Transaction)
_FIRST, _SECOND, _LEAST, _GREATEST = (int(i) for i in Prefix)
_MAP_ID, _MAP_START, _MAP_SIZE, _MAP_TABLE, _MAP_SEEN = (int(i) for i in Map)
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
    """The code of each type of event; 0 for a type that the kernel does not know."""
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
    reader: np.ndarray,
    maps: np.ndarray,
    map_bytes: np.ndarray,
    prefixes: np.ndarray,
    rows: np.ndarray,
    transactions: np.ndarray,
) -> int:
    """Follow the events from `first` up to `last`. Returns the first event that is not followed, or `last`.

    `checksum` is the number of bytes of an event's checksum. `inner` events are in a payload and move no position.
    `reader` (`ReaderState`), `rows` (`Row`) and `transactions` (`Transaction`) are changed. `prefixes` (`Prefix`) has
    only the last range of transactions to skip: a GTID below it is left to `segment`.
    """
    for event in range(first, last):
        start, stop = offset[event], offset[event] + size[event] - checksum
        end = reader[_POS]
        if not inner:
            end += size[event]
            flags = data[start + 17]
            declared = number(data, start + 13, 4)
            # in MariaDB 11 only the last event of a transaction says where it ends
            is_inside = declared == 0 and reader[_STATE] == _OPEN and reader[_ENDS] == 0
            # an event that ends elsewhere than it says, one that the server made up, or one before the segment's start
            if (declared != end & 0xFFFFFFFF and not is_inside) or flags & ARTIFICIAL or reader[_POS] < reader[_START]:
                return event
            if end >= reader[_STOP]:
                return event
        if reader[_STATE] == _PASSING:  # a skipped transaction: only its end counts
            if end > reader[_ENDS]:
                return event
            if end == reader[_ENDS]:
                reader[_STATE] = _OUTSIDE
            reader[_POS] = end
            continue
        code = _CODE[data[start + 4]]
        if code == _ROW:
            is_followed = _row(data, start, stop, reader, maps, rows)
        elif code == _TABLE:
            is_followed = reader[_STATE] == _OPEN and _table(data, start, stop, reader, maps, map_bytes)
        elif code == _COMMIT:
            is_followed = reader[_STATE] == _OPEN and (inner != 0 or end == reader[_ENDS] or reader[_ENDS] == 0)
            if is_followed:
                reader[_STATE] = _OUTSIDE
        elif code == _QUERY:
            is_followed = reader[_STATE] == _AFTER_GTID and _is_begin(data, start + HEADER, stop)
            if is_followed:
                reader[_STATE] = _OPEN
        elif code == _GTID:
            is_followed = inner == 0 and _gtid(data, start, stop, reader, prefixes, transactions)
        elif code == _DOMAIN_GTID:
            is_followed = inner == 0 and _domain_gtid(data, start, stop, reader, prefixes, transactions)
        else:
            is_followed = code == _PASS
        if not is_followed:
            return event
        reader[_POS] = end
    return last


@step
def _gtid(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, prefixes: np.ndarray, transactions: np.ndarray
) -> bool:
    """Begin a transaction at MySQL's GTID event. False if the event is left to `segment`."""
    if reader[_STATE] != _OUTSIDE or stop - start <= _GTID_BYTES or reader[_TRANSACTIONS] >= len(transactions):
        return False
    prefix, is_skipped = -1, False
    if data[start + 4] == _GTID_TYPE:
        first, second = load64(data, start + HEADER + 1), load64(data, start + HEADER + 9)
        prefix = _known(prefixes, first, second)
        if prefix < 0 or load64(data, start + HEADER + 17) < prefixes[prefix, _LEAST]:
            return False
        is_skipped = load64(data, start + HEADER + 17) <= prefixes[prefix, _GREATEST]
    elif reader[_GTIDS]:
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
    if is_skipped:
        reader[_ENDS] = reader[_POS] + length
        reader[_STATE] = _PASSING
        return True
    number_ = load64(data, start + HEADER + 17) if prefix >= 0 else 0
    _begin(reader, transactions, prefix, number_, reader[_POS] + length, committed_at)
    reader[_ENDS] = reader[_POS] + length
    reader[_STATE] = _AFTER_GTID
    return True


@step
def _domain_gtid(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, prefixes: np.ndarray, transactions: np.ndarray
) -> bool:
    """Begin a transaction at MariaDB's GTID event. False if the event is left to `segment`."""
    body = start + HEADER
    if reader[_STATE] != _OUTSIDE or stop - body < _DOMAIN_GTID_BYTES or reader[_TRANSACTIONS] >= len(transactions):
        return False
    prefix = _known(prefixes, number(data, body + 8, 4), number(data, start + 5, 4))
    if prefix < 0 or load64(data, body) <= 0 or data[body + 12] & PREPARED:
        return False
    _begin(reader, transactions, prefix, load64(data, body), reader[_POS] + 1, number(data, start, 4) * 1_000_000)
    reader[_ENDS] = 0
    reader[_STATE] = _AFTER_GTID if data[body + 12] & STANDALONE else _OPEN
    return True


@step
def _known(prefixes: np.ndarray, first: int, second: int) -> int:
    """The number of the prefix with these two halves; −1 if it is new."""
    index = -1
    for candidate in range(len(prefixes)):
        if prefixes[candidate, _FIRST] == first and prefixes[candidate, _SECOND] == second:
            index = candidate
    return index


@step
def _begin(
    reader: np.ndarray, transactions: np.ndarray, prefix: int, number_: int, pos: int, committed_at: int
) -> None:
    """Add a transaction that begins at the reader's position; `pos` is its place (`Transaction.POS`)."""
    index = reader[_TRANSACTIONS]
    transactions[index, _PREFIX] = prefix
    transactions[index, _NUMBER] = number_
    transactions[index, _PLACE] = pos
    transactions[index, _COMMITTED_AT] = committed_at
    reader[_TRANSACTIONS] += 1
    reader[_COUNT] += 1
    reader[_HAS_ROWS] = 0
    reader[_BEGUN] = reader[_POS]


@step
def _is_begin(data: np.ndarray, body: int, stop: int) -> bool:
    """Whether a QUERY event is the BEGIN of a transaction."""
    if stop - body < 13:
        return False
    text = body + 13 + number(data, body + 11, 2) + data[body + 8] + 1
    return stop - text == 5 and number(data, text, 5) == _BEGIN


@kernel
def map_place(maps: np.ndarray, table_id: int) -> int:
    """The entry of a table id in the hash table, or the free entry for it. At least one entry is always free."""
    place = table_id % len(maps)
    while maps[place, _MAP_SIZE] and maps[place, _MAP_ID] != table_id:
        place = (place + 1) % len(maps)
    return place


@step
def _table(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, maps: np.ndarray, map_bytes: np.ndarray
) -> bool:
    """Whether the same TABLE_MAP event, byte for byte, was seen before."""
    body = start + HEADER
    if stop - body < 8:
        return False
    place = map_place(maps, number(data, body, 6))
    if maps[place, _MAP_SIZE] != stop - body:
        return False
    seen_at = maps[place, _MAP_START]
    for i in range(0, stop - body, 8):
        bytes_left = stop - body - i
        if bytes_left >= 8:
            if load64(data, body + i) != load64(map_bytes, seen_at + i):
                return False
        elif number(data, body + i, bytes_left) != number(map_bytes, seen_at + i, bytes_left):
            return False
    maps[place, _MAP_SEEN] = reader[_COUNT]
    return True


@step
def _row(data: np.ndarray, start: int, stop: int, reader: np.ndarray, maps: np.ndarray, rows: np.ndarray) -> bool:
    """Add a row event to `rows`, if its table is copied. False if the event is left to `segment`."""
    if reader[_STATE] != _OPEN or stop - start < HEADER + 8:
        return False
    place = map_place(maps, number(data, start + HEADER, 6))
    if maps[place, _MAP_SIZE] == 0 or maps[place, _MAP_SEEN] != reader[_COUNT]:
        return False
    if not data[start + HEADER + ROW_FLAGS] & LOGS_CASCADES:
        reader[_UNMARKED] = 1
    if maps[place, _MAP_TABLE] >= 0:
        if reader[_ROWS] == len(rows):
            return False
        index = reader[_ROWS]
        rows[index, _ROW_START] = start
        rows[index, _ROW_STOP] = stop
        rows[index, _ROW_TABLE] = maps[place, _MAP_TABLE]
        rows[index, _ROW_TRANSACTION] = reader[_TRANSACTIONS] - 1
        rows[index, _ROW_POS] = reader[_POS]
        reader[_ROWS] += 1
        reader[_HAS_ROWS] = 1
    return True
