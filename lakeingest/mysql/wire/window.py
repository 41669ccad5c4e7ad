"""A window of the binlog: the row events and transactions that were followed, until they are read and given out."""

import uuid
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.position import DomainGtid, FilePosition, Gtid, GtidSet
from lakeingest.core.schema import TableSchema
from lakeingest.core.segments import Segment
from lakeingest.mysql.wire.follow import Row, Transaction
from lakeingest.mysql.wire.row_events import Halves, RowReader
from lakeingest.rows import INSTANT, TRANSACTIONS, Part, change_schema

_ROW_EVENTS = 16_384
_TRANSACTIONS = 8_192
_NO_NUMBERS = (1, 0)  # from the one up to the other
_NONE_IS_GREATER = int(np.iinfo(np.int64).max)


class Sources:
    """What transactions are named after, by number: servers and tags, or domains; up to which each was read before."""

    def __init__(self, skip: GtidSet) -> None:
        self._skip = dict(skip.members)
        self._names: list[tuple[str | None, str | None]] = []
        self._prefixes: list[str] = []
        self.known = np.empty((0, 4), np.int64)  # for `follow`, which knows no tags

    def number(self, gtid: Gtid | DomainGtid) -> int:
        """The number of the GTID's server and tag, or of its domain and server."""
        prefix = str(gtid).removesuffix(str(gtid.number))
        if prefix not in self._prefixes:
            self._prefixes.append(prefix)
            self._add(gtid)
        return self._prefixes.index(prefix)

    def _add(self, gtid: Gtid | DomainGtid) -> None:
        if isinstance(gtid, DomainGtid):
            self._names.append((None, None))
            self.known = np.vstack([self.known, [gtid.domain, gtid.server, *_NO_NUMBERS]])
        else:
            name = (gtid.uuid, gtid.tag)
            self._names.append(name)
            halves = np.frombuffer(uuid.UUID(gtid.uuid).bytes, np.int64)
            least, greatest = self._skip.get(name, (_NO_NUMBERS,))[-1]
            if gtid.tag:
                halves, (least, greatest) = np.zeros(2, np.int64), (_NONE_IS_GREATER, _NONE_IS_GREATER)
            self.known = np.vstack([self.known, [*halves, least, greatest]])

    def gtid(self, source: int, number: int) -> str | None:
        """The text of a GTID, from the number of its source; None for −1."""
        return None if source < 0 else f"{self._prefixes[source]}{number}"

    def columns(self, numbers: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The UUID and the tag of each number, null for −1 and of MariaDB's; and what GTIDs of it begin with."""
        chosen = pa.array(numbers, mask=numbers < 0)
        uuids, tags = ([name[part] for name in self._names] for part in (0, 1))
        uuid_, tag, prefix = (pa.array(one, pa.string()).take(chosen) for one in (uuids, tags, self._prefixes))
        return uuid_, tag, prefix


class Window:
    """Row events (`follow.Row`) and transactions (`follow.Transaction`) of one binlog file, in order."""

    def __init__(self, segment: Segment, schemas: Iterable[TableSchema]) -> None:
        self._epoch = segment.epoch
        self._types = {schema.table: change_schema(schema) for schema in schemas}
        self.sources = Sources(segment.skip)
        self.reader = RowReader()
        self.rows = np.empty((_ROW_EVENTS, len(Row)), np.int64)
        self.transactions = np.empty((_TRANSACTIONS, len(Transaction)), np.int64)
        self._halves = 0  # of the open transaction, given out before

    def parts(
        self, data: np.ndarray, rows: int, transactions: int, file: FilePosition, *, is_open: bool
    ) -> Iterator[Part]:
        """Read so many row events and transactions: the batches of change rows, then that of complete transactions.

        The last transaction `is_open` or complete; an open one is the first of the next window.
        """
        found = self.rows[:rows]
        halves = list(self.reader.read(data, found, file.file))
        first = self._ordinals(found, halves, transactions, is_open=is_open)
        uuids, tags, prefixes = self.sources.columns(self.transactions[:transactions, Transaction.SOURCE])
        numbers = pa.array(self.transactions[:transactions, Transaction.NUMBER])
        gtids = pc.binary_join_element_wise(prefixes, numbers.cast(pa.string()), "")
        for one in halves:
            yield self._changes(one, found, first, gtids, file.number)
        complete = transactions - is_open
        if complete:
            yield None, self._log(uuids[:complete], tags[:complete], file.number)
        if is_open:
            self.transactions[0] = self.transactions[transactions - 1]

    def last(self, transactions: int) -> tuple[str | None, int]:
        """The GTID and the commit time, in µs, of the last of so many transactions."""
        source, number, _, committed_at = self.transactions[transactions - 1].tolist()
        return self.sources.gtid(source, number), committed_at

    def _ordinals(self, rows: np.ndarray, halves: list[Halves], transactions: int, *, is_open: bool) -> np.ndarray:
        """The ordinal of the first half of each row event within its transaction."""
        counts = np.zeros(len(rows), np.int64)
        for one in halves:
            counts += np.bincount(one.event, minlength=len(rows))
        before = np.cumsum(counts) - counts
        transaction = rows[:, Row.TRANSACTION]
        begins = before[np.searchsorted(transaction, transaction)]
        first = before - begins + np.where(transaction == 0, self._halves, 0)
        last = transactions - 1
        of_last = int(counts[transaction == last].sum()) + (self._halves if last == 0 else 0)
        self._halves = of_last if is_open else 0
        return first

    def _changes(self, halves: Halves, rows: np.ndarray, first: np.ndarray, gtids: pa.Array, file: int) -> Part:
        schema = self.reader.schema(halves.table)
        transaction = rows[halves.event, Row.TRANSACTION]
        count = len(halves.kind)
        origin = [
            pa.array(halves.kind),
            pa.repeat(pa.scalar(self._epoch, pa.int32()), count),
            pa.repeat(pa.scalar(file, pa.int64()), count),
            pa.array(self.transactions[transaction, Transaction.POS]),
            pa.array(first[halves.event] + halves.within),
            pa.array(self.transactions[transaction, Transaction.COMMITTED_AT]).cast(INSTANT),
            gtids.take(pa.array(transaction)),
        ]
        return schema.table, pa.RecordBatch.from_arrays([*origin, *halves.columns], schema=self._types[schema.table])

    def _log(self, uuids: pa.Array, tags: pa.Array, file: int) -> pa.RecordBatch:
        complete = self.transactions[: len(uuids)]
        numbers = complete[:, Transaction.NUMBER]
        columns = [
            uuids,
            tags,
            pa.array(numbers, mask=np.asarray(uuids.is_null())),
            pa.repeat(pa.scalar(self._epoch, pa.int32()), len(complete)),
            pa.repeat(pa.scalar(file, pa.int64()), len(complete)),
            pa.array(complete[:, Transaction.POS]),
            pa.array(complete[:, Transaction.COMMITTED_AT]).cast(INSTANT),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TRANSACTIONS)
