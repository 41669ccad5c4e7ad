"""Mutations of what a real server sent: `python -m tests.mysql.wire.fuzz 10000000` tries so many and prints figures.

A process of its own, since a fault may end it: the bytes stand between pages that may not be touched, a kernel that
does not come back is killed, and any other error than those with a name ends it with the seed of its input.
"""

import ctypes
import faulthandler
import itertools
import json
import mmap
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import BinlogGone, ProtocolBroken, SchemaChanged, SourceAway, UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.wire import events, grammar, segment
from lakeingest.mysql.wire.charsets import UnknownCharset
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, Type
from lakeingest.mysql.wire.follow import ReaderState, Row, Transaction, follow
from lakeingest.mysql.wire.framing import Status, frame_bare_events, frame_events
from lakeingest.mysql.wire.grammar import State
from lakeingest.mysql.wire.maps import Maps
from lakeingest.mysql.wire.payload import open_payload, read_payload
from lakeingest.mysql.wire.result_set import ResultSet
from lakeingest.mysql.wire.row_events import RowReader
from lakeingest.mysql.wire.segment import SegmentDecoder
from lakeingest.mysql.wire.table_map import TableMap, read_table_map
from tests.mysql.wire.recorded import Rows, payloads, recorded_dump, recorded_rows
from tests.mysql.wire.stream import EOF, FILE, SOURCE, Stream, event, feed, gtid_body, packets, payload_body

HEADER = 19
SECONDS = 120  # that so many inputs may take
STEP = 1000
_ODD = (0, 1, 2, 7, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_ODD_NUMBERS = (0, 1, 0xFF, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_NAMED = (UnsupportedEvent, UnsupportedValue, SchemaChanged, BinlogGone, SourceAway)
_UNPACKED_MAX = 1 << 22


class Guarded:
    """Memory with a page before and after it that may not be touched."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        inside = (size + page - 1) // page * page
        self._memory = mmap.mmap(-1, inside + 2 * page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for guard in (address, address + page + inside):
            if protect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._inside = np.frombuffer(self._memory, np.uint8)[page : page + inside]

    def last(self, raw: bytes) -> np.ndarray:
        """The bytes, so that the page after them begins where SLACK ends."""
        return self._placed(raw, len(self._inside) - len(raw) - SLACK)

    def first(self, raw: bytes) -> np.ndarray:
        """The bytes, just after the page before them."""
        return self._placed(raw, 0)

    def _placed(self, raw: bytes, at: int) -> np.ndarray:
        placed = self._inside[at : at + len(raw) + SLACK]
        placed[: len(raw)] = np.frombuffer(raw, np.uint8)
        return placed


def mutated(chance: random.Random, raw: bytes, first: int, pool: Sequence[bytes]) -> bytes:
    """The bytes with something else from `first` on."""
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(first, max(len(data), first + 1))
        match chance.randrange(10):
            case 0 | 1 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 2 | 3 if at < len(data):
                data[at] = chance.choice(_ODD)
            case 4:
                size = chance.choice((1, 2, 3, 4, 8))
                data[at : at + size] = (chance.choice(_ODD_NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "little")
            case 5:
                del data[at:]
            case 6:
                del data[at : at + chance.choice((1, 2, 4, 30))]
            case 7:
                data[at:at] = chance.randbytes(chance.choice((1, 2, 8, 40)))
            case 8:
                data[at:at] = data[at : at + chance.choice((1, 4, 20, 300))]
            case _:
                other = chance.choice(pool)
                begin = chance.randrange(len(other))
                data[at : at + chance.choice((1, 8, 100))] = other[begin : begin + chance.choice((1, 8, 100, 1000))]
    return bytes(data)


class Fault(AssertionError):
    """A promise of the wire that does not hold."""


def sound(error: Exception) -> str:
    """The message of a named error: one line that can be printed."""
    text = str(error)
    if "\n" in text or not text:
        raise Fault(f"a message that is not one line: {text!r}")
    text.encode()
    return text


class Fuzz:
    """Tries inputs, one after the other, each made from a seed of its own."""

    def __init__(self) -> None:
        dump = recorded_dump()
        self.schemas = dump.schemas
        self.pool = dump.events
        self.known = frozenset(self.pool)
        self.memory = Guarded(1 << 17)
        self.by_type: dict[int, list[bytes]] = {}
        self.transactions: list[list[tuple[int, bytes]]] = []
        self.row_events: list[tuple[bytes, TableSchema, int, TableMap, bytes]] = []  # with the map that it needs
        self.reader = RowReader()
        self._learn(self.pool)
        self.results: list[tuple[Rows, ResultSet, list[bytes]]] = [
            (
                rows,
                ResultSet(rows.schema, rows.definitions, rows.sequence),
                [payload for payload in payloads(rows.data) if payload[0] == 0],
            )
            for rows in recorded_rows()
        ]
        self.offset, self.size = np.empty(64, np.int64), np.empty(64, np.int64)
        self.kinds: dict[str, tuple[float, Callable[[random.Random], bool | None]]] = {
            "an event with its checksum": (78, self.sealed_event),
            "a row event": (8, self.row_event),
            "a result row": (2, self.result_row),
            "a TABLE_MAP event": (2, self.table_map),
            "a GTID or QUERY event": (8, self.beginning),
            "a payload": (1, self.payload),
            "an event in a transaction": (0.3, self.stream),
            "an event with its checksum, in a transaction": (0.2, self.sealed_stream),
        }

    def _learn(self, raw: Sequence[bytes]) -> None:
        maps: dict[int, tuple[TableSchema, int, TableMap, bytes]] = {}
        for one in raw:
            parsed = Event.parse(one, checksums=True)
            action = ACTIONS[parsed.type]
            self.by_type.setdefault(parsed.type, []).append(parsed.data)
            if action is Action.GTID:
                self.transactions.append([])
            elif action is not Action.FILE and self.transactions:
                self.transactions[-1].append((parsed.type, parsed.payload))
            if action is Action.TABLE and events.read_table_name(parsed) in self.schemas:
                found = read_table_map(parsed)
                schema = self.schemas[found.table]
                maps[found.id] = (schema, self.reader.add(schema, found, "at the corpus"), found, parsed.data)
            elif action is Action.ROWS and events.read_table_id(parsed) in maps:
                self.row_events.append((parsed.data, *maps[events.read_table_id(parsed)]))

    def place(self, chance: random.Random, raw: bytes) -> np.ndarray:
        """The bytes beside a page that may not be touched; what follows them is any."""
        placed = self.memory.first(raw) if chance.random() < 0.2 else self.memory.last(raw)
        placed[len(raw) :] = chance.randrange(256)
        return placed

    def sealed_event(self, chance: random.Random) -> bool | None:
        """An altered event is never found, whatever was altered."""
        raw = chance.choice(self.pool)
        altered = mutated(chance, raw, 0, self.pool)
        if altered in self.known:
            return None
        packet = (len(altered) + 1).to_bytes(3, "little") + b"\1\0" + altered
        data = self.place(chance, packet)
        status, _, _, found = frame_events(data, 0, len(packet), 1, True, self.offset, self.size)
        if not found:
            return False
        if status != Status.LOOK:
            raise Fault("an altered event was taken")
        made = self._made(chance)
        made.raw[1] = altered
        if not isinstance(self._read(chance, made, None), str):
            raise Fault("an altered FORMAT_DESCRIPTION event was taken")
        return False

    def row_event(self, chance: random.Random) -> bool | None:
        """A row event gives well-formed columns or a named error, whatever stands after it in memory."""
        raw, _, table, _, _ = chance.choice(self.row_events)
        altered = mutated(chance, raw, HEADER if chance.random() < 0.9 else 4, self.pool)
        if len(altered) < HEADER + 8 or altered == raw:
            return None
        found = self._rows(chance, altered, self.reader, table)
        if chance.random() < 0.1 and not same(found, self._rows(chance, altered, self.reader, table)):
            raise Fault("rows that depend on what follows them in memory")
        return isinstance(found, list)

    def _rows(self, chance: random.Random, raw: bytes, reader: RowReader, table: int) -> list[pa.Array] | str:
        data = self.place(chance, raw)
        rows = np.array([[0, len(raw), table, 0, 4]], np.int64)
        try:
            halves = list(reader.read(data, rows, FILE))
        except (UnsupportedEvent, UnsupportedValue) as error:
            return sound(error)
        for half in halves:
            well_formed(half.columns)
            if len(half.kind) != len(half.columns[0]) or half.within.tolist() != list(range(len(half.within))):
                raise Fault("halves that are not counted")
        return [column for half in halves for column in half.columns]

    def table_map(self, chance: random.Random) -> bool | None:
        """A TABLE_MAP event is read or damaged; rows that are read by it are as well-formed as any."""
        raw, schema, _, original, answer = chance.choice(self.row_events)
        altered = mutated(chance, answer, HEADER, self.pool)
        try:
            found = read_table_map(Event.from_data(altered))
            if found.columns == original.columns:
                return None if altered == answer else False
            reader = RowReader()
            table = reader.add(schema, found, "at the corpus")
        except (Damaged, UnknownCharset, UnsupportedEvent, SchemaChanged) as error:
            sound(error)
            return False
        return isinstance(self._rows(chance, raw, reader, table), list)

    def beginning(self, chance: random.Random) -> bool | None:
        """What the kernel follows is what the rules of the grammar say of it."""
        type_ = chance.choice((Type.GTID, Type.GTID_TAGGED, Type.QUERY))
        altered = bytearray(mutated(chance, chance.choice(self.by_type[type_]), HEADER, self.pool))
        end = 1000 + len(altered)
        altered[9:19] = len(altered).to_bytes(4, "little") + end.to_bytes(4, "little") + bytes(2)
        parsed = Event.from_data(bytes(altered))
        reader = np.zeros(len(ReaderState), np.int64)
        reader[ReaderState.POS], reader[ReaderState.STOP] = 1000, 1 << 40
        reader[ReaderState.STATE] = State.BEGUN if type_ == Type.QUERY else State.OUTSIDE
        transactions = np.zeros((2, len(Transaction)), np.int64)
        source = np.frombuffer(self.by_type[Type.GTID][0][HEADER + 1 : HEADER + 17], np.int64)
        least, greatest = chance.choice(((1, 0), (1, 1 << 62), (5, 9)))
        followed = self._follow(chance, bytes(altered), reader, np.array([[*source, least, greatest]]), transactions)
        try:
            if type_ == Type.QUERY:
                here = FilePosition(FILE, 1000)
                sign = grammar.sign_of(parsed, grammar.Watched(self.schemas), here, has_rows=chance.random() < 0.5)
                if followed and sign is not grammar.Sign.BEGIN:
                    raise Fault("a statement was followed as BEGIN")
            else:
                said = events.read_gtid(parsed)
                if followed:
                    assert said.gtid is not None
                    expected = [0, said.gtid.number, 1000 + said.length, said.committed_at]
                    is_skipped = least <= said.gtid.number <= greatest
                    state = reader[ReaderState.STATE]
                    if state != (State.PASSING if is_skipped else State.BEGUN) or said.gtid.number < least:
                        raise Fault(f"a GTID event was followed to {state}, with {least} to {greatest} skipped")
                    if (not is_skipped and transactions[0].tolist() != expected) or reader[
                        ReaderState.ENDS
                    ] != expected[2]:
                        raise Fault(f"a GTID event was followed as {transactions[0]}, not {expected}")
        except (Damaged, UnsupportedEvent) as error:
            sound(error)
            if followed:
                raise Fault(f"an event was followed, but: {error}") from error
        return followed

    def _follow(
        self, chance: random.Random, raw: bytes, reader: np.ndarray, prefixes: np.ndarray, transactions: np.ndarray
    ) -> bool:
        data, maps = self.place(chance, raw), Maps()
        self.offset[0], self.size[0] = 0, len(raw)
        rows = np.zeros((4, len(Row)), np.int64)
        last = follow(
            data, self.offset, self.size, 0, 1, 0, 0, reader, maps.entries, maps.data, prefixes, rows, transactions
        )
        return last == 1

    def payload(self, chance: random.Random) -> bool | None:
        """A compressed transaction is unpacked or damaged; its events are found within its bytes."""
        altered = mutated(chance, chance.choice(self.by_type[Type.TRANSACTION_PAYLOAD]), HEADER, self.pool)
        unpacked = bytearray()
        room = bytearray(5000)
        try:
            stream = open_payload(Event.from_data(altered))
            while len(unpacked) < _UNPACKED_MAX and (count := read_payload(stream, memoryview(room))):
                unpacked += room[:count]
        except Damaged as error:
            sound(error)
            return False
        raw = mutated(chance, bytes(unpacked[: 1 << 16]) or b"\0", 0, self.pool)[: 1 << 16]
        data, at, status = self.place(chance, raw), 0, int(Status.FULL)
        while status == Status.FULL:
            status, at, found = frame_bare_events(data, at, len(raw), self.offset, self.size)
            if any(self.offset[:found] + self.size[:found] > len(raw)) or at > len(raw):
                raise Fault("an event beyond the end")
        return bool(unpacked)

    def result_row(self, chance: random.Random) -> bool | None:
        """A row of a result set gives well-formed columns or a named error."""
        rows, result, raw = chance.choice(self.results)
        first, second = chance.choice(raw), chance.choice(raw)
        altered = packets([mutated(chance, first, 0, raw), second, EOF], rows.sequence)
        buffer: Any = result._buffer  # noqa: SLF001 - so that it need not be made anew
        buffer.data = self.place(chance, altered)
        buffer.at, buffer.end = 0, 0
        result._sequence, result._rows = rows.sequence, 0  # noqa: SLF001
        result.is_done, result.error = False, None
        try:
            batches = list(result.take(len(altered)))
        except (ProtocolBroken, SourceAway, UnsupportedValue) as error:
            sound(error)
            return False
        for batch in batches:
            well_formed(batch.columns)
        return bool(batches)

    def stream(self, chance: random.Random) -> bool | None:
        """A transaction with an altered event gives the same rows or the same error, however its bytes are cut."""
        made = Stream(checksums=chance.random() < 0.5)
        made.add(Type.GTID, gtid_body(7))
        transaction = list(chance.choice(self.transactions))
        if not transaction:
            return None
        index = chance.randrange(len(transaction))
        type_, body = transaction[index]
        if type_ == Type.TRANSACTION_PAYLOAD and chance.random() < 0.8:
            body = payload_body(self._inside(chance, body), chance.choice(("zstd", None)))
        elif chance.random() < 0.05:
            type_ = chance.randrange(256)
        else:
            body = mutated(chance, body, 0, self.pool)
        transaction[index] = (type_, body)
        for one in transaction:
            made.add(*one)
        found = self._read(chance, made, None)
        if not same(found, self._read(chance, made, random.Random(chance.random()))):
            raise Fault("a transaction that depends on how its bytes are cut")
        return not isinstance(found, str)

    def _inside(self, chance: random.Random, body: bytes) -> bytes:
        """The events of a payload, one of them altered and as long as it says."""
        stream = open_payload(Event.from_data(event(Type.TRANSACTION_PAYLOAD, body, checksum=False)))
        room = bytearray(1 << 16)
        whole = bytes(room[: read_payload(stream, memoryview(room))])
        starts = [0]
        while starts[-1] < len(whole):
            starts.append(starts[-1] + int.from_bytes(whole[starts[-1] + 9 : starts[-1] + 13], "little"))
        raw = [whole[start:stop] for start, stop in pairwise(starts)]
        index = chance.randrange(len(raw))
        altered = bytearray(mutated(chance, raw[index], HEADER if chance.random() < 0.9 else 0, self.pool))
        if chance.random() < 0.9:
            altered[9:13] = len(altered).to_bytes(4, "little")
        return b"".join([*raw[:index], altered, *raw[index + 1 :]])

    def sealed_stream(self, chance: random.Random) -> bool | None:
        """A transaction with an altered event is always an error where events have checksums."""
        made = self._made(chance)
        index = chance.randrange(1, len(made.raw))
        altered = mutated(chance, made.raw[index], 0, self.pool)
        if altered in self.known or altered == made.raw[index]:
            return None
        made.raw[index] = altered
        found = self._read(chance, made, random.Random(chance.random()))
        if not isinstance(found, str):
            raise Fault("an altered event was taken")
        return False

    def _made(self, chance: random.Random) -> Stream:
        made = Stream()
        made.add(Type.GTID, gtid_body(7))
        for one in chance.choice(self.transactions):
            made.add(*one)
        return made

    def _read(self, chance: random.Random, made: Stream, cut: random.Random | None) -> dict[Any, pa.Table] | str:
        """The rows of the stream's tables, or the error."""
        whole = Segment(SOURCE, 1, made.start, FilePosition(FILE, made.pos), GtidSet())
        decoder: Any = SegmentDecoder(whole, made.start, self.schemas, gtids=True)
        data = packets([*(b"\0" + one for one in made.raw), EOF])
        if cut is None:
            decoder._outer.data = self.place(chance, data)  # noqa: SLF001 - where no byte after it may be read
        try:
            parts = list(feed(decoder, data, cut))
        except _NAMED as error:
            return f"{type(error).__name__}: {sound(error)}"
        if not decoder.is_done:
            raise Fault("an end without an error")
        for _, batch in parts:
            well_formed(batch.columns)
        tables = {table for table, _ in parts}
        return {table: pa.Table.from_batches([batch for found, batch in parts if found == table]) for table in tables}

    def run(self, inputs: int, seed: int) -> dict[str, Any]:
        """Try so many inputs; how many of each kind, and of how many rows came out."""
        names = list(self.kinds)
        weights = [weight for weight, _ in self.kinds.values()]
        tried: Counter[str] = Counter()
        taken: Counter[str] = Counter()
        choosing = random.Random(seed)
        began, used = time.monotonic(), time.process_time()
        numbers = itertools.count()
        while sum(tried.values()) < inputs:
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            for name, number in zip(choosing.choices(names, weights, k=STEP), numbers, strict=False):
                try:
                    found = self.kinds[name][1](random.Random(f"{seed} {number}"))
                except Exception as error:
                    error.add_note(f"seed {seed}, input {number}: {name}")
                    raise
                if found is not None:  # else nothing was altered
                    tried[name] += 1
                    taken[name] += found
        faulthandler.cancel_dump_traceback_later()
        return {
            "inputs": sum(tried.values()),
            "kinds": {name: {"tried": tried[name], "taken": taken[name]} for name in names},
            "wall seconds": round(time.monotonic() - began, 1),
            "CPU seconds": round(time.process_time() - used, 1),
        }


def well_formed(columns: Sequence[pa.Array]) -> None:
    """Fault unless Arrow finds nothing wrong."""
    for column in columns:
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise Fault(f"a column that is not well formed: {error}") from error


def same(one: Any, other: Any) -> bool:
    """Whether two findings are equal; a float that is no number is equal to itself."""
    return bool(one == other) or shown(one) == shown(other)


def shown(found: Any) -> str:
    """A finding as text."""
    if isinstance(found, dict):
        return repr({key: table.to_pylist() for key, table in found.items()})
    return found if isinstance(found, str) else repr([column.to_pylist() for column in found])


if __name__ == "__main__":
    faulthandler.enable()
    segment._BUFFER_BYTES = 1 << 14  # noqa: SLF001 - large ones cost more than the inputs
    print(json.dumps(Fuzz().run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))  # noqa: T201
