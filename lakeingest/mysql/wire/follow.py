"""Follows the events of a binlog from transaction to transaction: the fast path for the usual events.

The kernel `follow` handles five events: GTID, BEGIN, a TABLE_MAP that was seen before, rows, and the XID that commits.
It leaves every other event, and every event that seems wrong, to `segment`. `segment` knows the whole grammar
(`grammar.NEXT`) and raises the errors.

In the steps of the kernel, `start` and `stop` are the offsets in `data` of an event's begin, and of its end without its
checksum.
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
    """Indexes into the array that holds the state of the reader. All positions are byte positions in the file."""

    STATE = 0  # grammar.State
    POS = 1  # the end of the last event
    START = 2  # events of this file that end at or before this position are skipped
    STOP = 3  # the segment's end; in a file before the end's file, a position that no file reaches; in a file after, 0
    BEGUN = 4  # the beginning of the open transaction's GTID event
    ENDS = 5  # the end of the open transaction, by the length in its GTID event; 0 if the event has no length
    ROWS = 6  # the number of row events in the array `rows`
    TRANSACTIONS = 7  # the number of transactions in the array `transactions`, with the open one
    HAS_ROWS = 8  # whether the open transaction has rows of a copied table
    COUNT = 9  # the number of all transactions that were begun, without skipped ones
    GTIDS = 10  # whether each transaction must have a GTID
    LACKS_CASCADES = 11  # whether at least one row event that was read lacks the flag `events.LOGS_CASCADES`


class Row(enum.IntEnum):
    """Columns of the array of row events of copied tables."""

    START = 0  # the event's offset in the buffer
    STOP = 1  # the offset of its end, without its checksum
    TABLE = 2  # the number of the table (`RowReader.add`)
    TRANSACTION = 3  # the index of the transaction in the array of transactions
    POS = 4  # the event's beginning in the file


class Transaction(enum.IntEnum):
    """Columns of the array of transactions."""

    PREFIX = 0  # the index of its GTID's prefix; −1 without a GTID
    NUMBER = 1  # of its GTID, after the prefix
    # its end in the file. MariaDB does not tell the end: there, its beginning plus 1, so that a position at its
    # beginning does not contain it
    POS = 2
    COMMITTED_AT = 3  # in µs since 1970


class Prefix(enum.IntEnum):
    """Columns of the array of GTID prefixes; a prefix is the part of a GTID before its number."""

    FIRST = 0  # the first half of the UUID; MariaDB: the domain
    SECOND = 1  # the second half of the UUID; MariaDB: the server id
    LEAST = 2  # the first number of the last range of numbers to skip
    GREATEST = 3  # the last number of this range


class Map(enum.IntEnum):
    """Columns of the hash table of TABLE_MAP events; an entry with size 0 is free."""

    ID = 0  # the table id
    START = 1  # the offset of the event's bytes without its header, in `Maps.data`
    SIZE = 2  # the number of these bytes
    TABLE = 3  # the number of the table (`RowReader.add`); −1 if the table is not copied
    SEEN = 4  # the number (ReaderState.COUNT) of the last transaction that had the event


# numba takes only plain numbers of a module as constants
_STATE, _POS, _START, _STOP, _BEGUN, _ENDS, _ROWS, _TRANSACTIONS, _HAS_ROWS, _COUNT, _GTIDS, _LACKS_CASCADES = (
    int(i) for i in ReaderState
)
_ROW_START, _ROW_STOP, _ROW_TABLE, _ROW_TRANSACTION, _ROW_POS = (int(i) for i in Row)
_PREFIX, _NUMBER, _TRANSACTION_POS, _COMMITTED_AT = (int(i) for i in Transaction)
_FIRST, _SECOND, _LEAST, _GREATEST = (int(i) for i in Prefix)
_MAP_ID, _MAP_START, _MAP_SIZE, _MAP_TABLE, _MAP_SEEN = (int(i) for i in Map)
_OUTSIDE, _AFTER_GTID, _OPEN, _PASSING = (int(s) for s in (State.OUTSIDE, State.BEGUN, State.OPEN, State.PASSING))
# The kernel's own codes of events; 0: the kernel leaves the event to `segment`
_GTID, _QUERY, _TABLE, _ROW, _COMMIT, _PASS, _DOMAIN_GTID = 1, 2, 3, 4, 5, 6, 7
_CODE_BY_ACTION = {
    Action.QUERY: _QUERY,
    Action.TABLE: _TABLE,
    Action.ROWS: _ROW,
    Action.COMMIT: _COMMIT,
    Action.PASS: _PASS,
}
_GTID_BYTES = HEADER + 49  # of MySQL's GTID event, up to and with its commit time; its transaction's length follows
_GTID_TYPE = int(Type.GTID)  # not an ANONYMOUS_GTID event, which has the same form
_DOMAIN_GTID_BYTES = 13  # of MariaDB's GTID event: number, domain, flags
_BEGIN = int.from_bytes(b"BEGIN", "little")


def _codes_by_type() -> np.ndarray:
    """The kernel's code of each type of event, by the type's number."""
    codes = np.zeros(256, np.int64)
    for type_, action in ACTIONS.items():
        codes[type_] = _CODE_BY_ACTION.get(action, 0)
    codes[Type.GTID] = codes[Type.ANONYMOUS_GTID] = _GTID
    codes[Type.DOMAIN_GTID] = _DOMAIN_GTID
    return codes


_CODE_BY_TYPE = _codes_by_type()


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
    """Follow the events from index `first` up to `last`.

    Returns the index of the first event that is left to `segment`; `last` if no event is left to it.

    `offset` and `size` have the events' offsets in `data`, and their sizes. The last `checksum` bytes of each event are
    its checksum. `inner` is 1 for events of a compressed or prepared transaction, which move no position. `maps` and
    `map_bytes` are `Maps.entries` and `Maps.data`. The kernel updates `reader` (`ReaderState`), `rows` (`Row`),
    `transactions` (`Transaction`), and `Map.SEEN`. `prefixes` (`Prefix`) has only the last range of the numbers to
    skip. So a GTID with a number below this range is left to `segment`, which knows all ranges.
    """
    for event in range(first, last):
        start, stop = offset[event], offset[event] + size[event] - checksum
        end = reader[_POS]
        if not inner:
            end += size[event]
            flags = data[start + 17]
            declared = number(data, start + 13, 4)
            lowest_bits = end & 0xFFFFFFFF  # a header has only 32 bits of the end
            # in MariaDB 11 only the last event of a transaction has an end position
            is_inside = declared == 0 and reader[_STATE] == _OPEN and reader[_ENDS] == 0
            # for `segment`: a wrong end position, an event that the server made up, an event before the segment's start
            if (declared != lowest_bits and not is_inside) or flags & ARTIFICIAL or reader[_POS] < reader[_START]:
                return event
            if end >= reader[_STOP]:  # the segment's last event: `segment` proves that a transaction ends here
                return event
        if reader[_STATE] == _PASSING:  # within a skipped transaction: only the transaction's end matters
            if end > reader[_ENDS]:  # damage: `segment` raises the error
                return event
            if end == reader[_ENDS]:
                reader[_STATE] = _OUTSIDE
            reader[_POS] = end
            continue
        code = _CODE_BY_TYPE[data[start + 4]]
        if code == _ROW:
            is_followed = _add_row(data, start, stop, reader, maps, rows)
        elif code == _TABLE:
            is_followed = reader[_STATE] == _OPEN and _note_map(data, start, stop, reader, maps, map_bytes)
        elif code == _COMMIT:  # if it does not end at the announced end, `segment` raises the error
            is_followed = reader[_STATE] == _OPEN and (inner != 0 or end == reader[_ENDS] or reader[_ENDS] == 0)
            if is_followed:
                reader[_STATE] = _OUTSIDE
        elif code == _QUERY:
            is_followed = reader[_STATE] == _AFTER_GTID and _is_begin(data, start + HEADER, stop)
            if is_followed:
                reader[_STATE] = _OPEN
        elif code == _GTID:
            is_followed = inner == 0 and _begin_at_gtid(data, start, stop, reader, prefixes, transactions)
        elif code == _DOMAIN_GTID:
            is_followed = inner == 0 and _begin_at_domain_gtid(data, start, stop, reader, prefixes, transactions)
        else:
            is_followed = code == _PASS
        if not is_followed:
            return event
        reader[_POS] = end
    return last


@step
def _begin_at_gtid(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, prefixes: np.ndarray, transactions: np.ndarray
) -> bool:
    """Begin a transaction at MySQL's GTID event. False if the event is left to `segment`."""
    # the event is not allowed here, or has no commit time or length, or the array `transactions` is full
    if reader[_STATE] != _OUTSIDE or stop - start <= _GTID_BYTES or reader[_TRANSACTIONS] >= len(transactions):
        return False
    prefix, is_skipped = -1, False
    # after the header: flags (1 byte), UUID (16), number (8), logical clock (17), commit time (7), perhaps another one
    if data[start + 4] == _GTID_TYPE:
        first, second = load64(data, start + HEADER + 1), load64(data, start + HEADER + 9)
        prefix = _prefix_index(prefixes, first, second)
        if prefix < 0 or load64(data, start + HEADER + 17) < prefixes[prefix, _LEAST]:
            return False  # the prefix is new, or the number may be in an earlier range of numbers to skip
        is_skipped = load64(data, start + HEADER + 17) <= prefixes[prefix, _GREATEST]
    elif reader[_GTIDS]:  # an ANONYMOUS_GTID event, although each transaction must have a GTID: `segment` refuses it
        return False
    where = start + HEADER + 42  # of the commit time
    committed_at = number(data, where, 7)
    where += 7
    if committed_at & HAS_ORIGINAL:
        committed_at &= ~HAS_ORIGINAL
        original = number(data, where, 7)
        committed_at = original or committed_at  # an original commit time of 0 is not known
        where += 7
    if where >= stop or committed_at >= TIMES_END:
        return False  # the event is cut, or its time is impossible: `segment` raises the error
    taken, length = packed(data, where)
    if not 0 < length < LENGTHS_END or where + taken > stop:
        return False  # the length is impossible, or the event is cut within it: `segment` raises the error
    if is_skipped:
        reader[_ENDS] = reader[_POS] + length
        reader[_STATE] = _PASSING
        return True
    number_ = load64(data, start + HEADER + 17) if prefix >= 0 else 0
    _add_transaction(reader, transactions, prefix, number_, reader[_POS] + length, committed_at)
    reader[_ENDS] = reader[_POS] + length
    reader[_STATE] = _AFTER_GTID
    return True


@step
def _begin_at_domain_gtid(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, prefixes: np.ndarray, transactions: np.ndarray
) -> bool:
    """Begin a transaction at MariaDB's GTID event. False if the event is left to `segment`."""
    body = start + HEADER
    # the event is not allowed here, or is cut, or the array `transactions` is full
    if reader[_STATE] != _OUTSIDE or stop - body < _DOMAIN_GTID_BYTES or reader[_TRANSACTIONS] >= len(transactions):
        return False
    # the domain is in the body, the server's id in the header
    prefix = _prefix_index(prefixes, number(data, body + 8, 4), number(data, start + 5, 4))
    if prefix < 0 or load64(data, body) <= 0 or data[body + 12] & PREPARED:
        return False  # the prefix is new, or the number is impossible, or the transaction is XA
    committed_at = number(data, start, 4) * 1_000_000  # the second in the header
    # beginning plus 1, because the end is not known: see `Transaction.POS`
    _add_transaction(reader, transactions, prefix, load64(data, body), reader[_POS] + 1, committed_at)
    reader[_ENDS] = 0  # the event does not have the transaction's length
    reader[_STATE] = _AFTER_GTID if data[body + 12] & STANDALONE else _OPEN  # else the event is also the BEGIN
    return True


@step
def _prefix_index(prefixes: np.ndarray, first: int, second: int) -> int:
    """The index of the prefix with these two halves; −1 if `prefixes` does not have it."""
    index = -1
    for candidate in range(len(prefixes)):
        if prefixes[candidate, _FIRST] == first and prefixes[candidate, _SECOND] == second:
            index = candidate
    return index


@step
def _add_transaction(
    reader: np.ndarray, transactions: np.ndarray, prefix: int, number_: int, pos: int, committed_at: int
) -> None:
    """Add a transaction, which begins at the reader's position, to `transactions`; `pos` is its `Transaction.POS`."""
    index = reader[_TRANSACTIONS]
    transactions[index, _PREFIX] = prefix
    transactions[index, _NUMBER] = number_
    transactions[index, _TRANSACTION_POS] = pos
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
    # the body: 13 bytes; the status variables (their size is at 11); the database's name (its size is at 8) and a NUL;
    # the text
    text = body + 13 + number(data, body + 11, 2) + data[body + 8] + 1
    return stop - text == 5 and number(data, text, 5) == _BEGIN


@kernel
def map_index(maps: np.ndarray, table_id: int) -> int:
    """The index of a table id's entry in the hash table; if it has none, the index of the free entry for the id.

    One entry is always free, so the search ends.
    """
    index = table_id % len(maps)
    while maps[index, _MAP_SIZE] and maps[index, _MAP_ID] != table_id:
        index = (index + 1) % len(maps)
    return index


@step
def _note_map(
    data: np.ndarray, start: int, stop: int, reader: np.ndarray, maps: np.ndarray, map_bytes: np.ndarray
) -> bool:
    """Note that a TABLE_MAP event is in this transaction, if an event with exactly the same bytes was seen before.

    False if the event's bytes are new, or the event is cut: the event is left to `segment`.
    """
    body = start + HEADER
    if stop - body < 8:
        return False
    index = map_index(maps, number(data, body, 6))
    if maps[index, _MAP_SIZE] != stop - body:
        return False
    seen_at = maps[index, _MAP_START]
    for i in range(0, stop - body, 8):  # compare the bytes, eight at a time
        bytes_left = stop - body - i
        if bytes_left >= 8:
            if load64(data, body + i) != load64(map_bytes, seen_at + i):
                return False
        elif number(data, body + i, bytes_left) != number(map_bytes, seen_at + i, bytes_left):
            return False
    maps[index, _MAP_SEEN] = reader[_COUNT]
    return True


@step
def _add_row(data: np.ndarray, start: int, stop: int, reader: np.ndarray, maps: np.ndarray, rows: np.ndarray) -> bool:
    """Add a row event to `rows`, unless its table is not copied. False if the event is left to `segment`."""
    if reader[_STATE] != _OPEN or stop - start < HEADER + 8:
        return False
    entry = map_index(maps, number(data, start + HEADER, 6))
    if maps[entry, _MAP_SIZE] == 0 or maps[entry, _MAP_SEEN] != reader[_COUNT]:  # no TABLE_MAP in this transaction
        return False
    if not data[start + HEADER + ROW_FLAGS] & LOGS_CASCADES:
        reader[_LACKS_CASCADES] = 1
    if maps[entry, _MAP_TABLE] >= 0:
        if reader[_ROWS] == len(rows):  # the array is full: `segment` empties it
            return False
        index = reader[_ROWS]
        rows[index, _ROW_START] = start
        rows[index, _ROW_STOP] = stop
        rows[index, _ROW_TABLE] = maps[entry, _MAP_TABLE]
        rows[index, _ROW_TRANSACTION] = reader[_TRANSACTIONS] - 1
        rows[index, _ROW_POS] = reader[_POS]
        reader[_ROWS] += 1
        reader[_HAS_ROWS] = 1
    return True
