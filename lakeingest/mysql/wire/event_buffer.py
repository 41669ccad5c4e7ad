"""Buffers the row events and transactions that `follow` and `segment` have read, and decodes them to Arrow batches."""

import uuid
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.position import DomainGtid, FilePosition, Gtid, GtidSet
from lakeingest.core.schema import TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import concerning
from lakeingest.mysql.wire.charsets import UnknownCharset
from lakeingest.mysql.wire.events import Event
from lakeingest.mysql.wire.follow import Prefix, Row, Transaction
from lakeingest.mysql.wire.grammar import refusal
from lakeingest.mysql.wire.row_events import Halves, RowReader
from lakeingest.mysql.wire.table_map import read_table_map
from lakeingest.mysql.wire.xa import Stamp
from lakeingest.rows import INSTANT, TRANSACTIONS, Part, change_schema

_ROW_EVENTS = 16_384
_TRANSACTIONS = 8_192
_NO_NUMBERS = (1, 0)  # an empty range: first number, last number
_NUMBER_MAX = int(np.iinfo(np.int64).max)


class GtidPrefixes:
    """Numbers the prefixes of GTIDs: the part before a GTID's number (server and tag, or domain and server).

    `table` (`follow.Prefix`) is for `follow`, which knows no tags: each GTID with a tag is left to `segment`.
    """

    def __init__(self, skip: GtidSet) -> None:
        self._skip = dict(skip.members)
        self._names: list[tuple[str | None, str | None]] = []
        self._prefixes: list[str] = []
        self.table = np.empty((0, len(Prefix)), np.int64)

    def number(self, gtid: Gtid | DomainGtid) -> int:
        """The number of the GTID's prefix; a new prefix gets the next one."""
        prefix = str(gtid).removesuffix(str(gtid.number))
        if prefix not in self._prefixes:
            self._prefixes.append(prefix)
            self._add(gtid)
        return self._prefixes.index(prefix)

    def _add(self, gtid: Gtid | DomainGtid) -> None:
        """Add the prefix of a GTID to the names and to the table of `follow`."""
        if isinstance(gtid, DomainGtid):
            self._names.append((None, None))
            self.table = np.vstack([self.table, [gtid.domain, gtid.server, *_NO_NUMBERS]])
        else:
            name = (gtid.uuid, gtid.tag)
            self._names.append(name)
            halves = np.frombuffer(uuid.UUID(gtid.uuid).bytes, np.int64)
            least, greatest = self._skip.get(name, (_NO_NUMBERS,))[-1]
            if gtid.tag:
                halves, (least, greatest) = np.zeros(2, np.int64), (_NUMBER_MAX, _NUMBER_MAX)
            self.table = np.vstack([self.table, [*halves, least, greatest]])

    def gtid(self, prefix: int, number: int) -> str | None:
        """The text of a GTID, from the number of its prefix; None for −1."""
        return None if prefix < 0 else f"{self._prefixes[prefix]}{number}"

    def columns(self, numbers: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The UUID, the tag and the text of each prefix. All are null for −1; MariaDB's have null as UUID and tag."""
        chosen = pa.array(numbers, mask=numbers < 0)
        uuids, tags = ([name[part] for name in self._names] for part in (0, 1))
        uuid_, tag, prefix = (pa.array(texts, pa.string()).take(chosen) for texts in (uuids, tags, self._prefixes))
        return uuid_, tag, prefix


class EventBuffer:
    """Row events (`follow.Row`) and transactions (`follow.Transaction`) of one binlog file, in order.

    With `stamp`, all rows belong to the transaction `stamp`.
    """

    def __init__(self, segment: Segment, schemas: Iterable[TableSchema], stamp: Stamp | None = None) -> None:
        self._stamp = stamp
        self._epoch = segment.epoch
        self._types = {schema.table: change_schema(schema) for schema in schemas}
        self.prefixes = GtidPrefixes(segment.skip)
        self.reader = RowReader()
        self.rows = np.empty((_ROW_EVENTS, len(Row)), np.int64)
        self.transactions = np.empty((_TRANSACTIONS, len(Transaction)), np.int64)
        self._halves = 0  # the number of the open transaction's halves that earlier batches have

    def add_table(self, schema: TableSchema, event: Event, at: FilePosition, *, is_mariadb: bool) -> int:
        """The row reader's number of a copied table, as a TABLE_MAP event describes it. The event begins at `at`.

        Raises SchemaChanged if the event's columns are not the schema's, UnsupportedEvent for an unknown charset.
        """
        with concerning(schema.table):
            try:
                return self.reader.add(schema, read_table_map(event, is_mariadb=is_mariadb), f"at {at}")
            except UnknownCharset as error:
                what, _, fix = str(error).partition("; ")
                raise refusal(what, fix, at) from error

    def parts(
        self, data: np.ndarray, rows: int, transactions: int, file: FilePosition, *, is_open: bool
    ) -> Iterator[Part]:
        """Decode the buffered row events and transactions: yield the batches of change rows, then the log's batch.

        `rows` and `transactions` are their counts. With `is_open`, the last transaction is not complete: it stays in
        the buffer as the first.
        """
        row_events = self.rows[:rows]
        halves = list(self.reader.read(data, row_events, file.file))
        first = self._ordinals(row_events, halves, transactions, is_open=is_open)
        uuids, tags, prefixes = self.prefixes.columns(self.transactions[:transactions, Transaction.PREFIX])
        numbers = pa.array(self.transactions[:transactions, Transaction.NUMBER])
        gtids = pc.binary_join_element_wise(prefixes, numbers.cast(pa.string()), "")
        place, stamp = file.number, self._stamp
        if stamp is not None:  # all rows are those of the transaction that commits them
            place, gtids = stamp.file, pa.repeat(pa.scalar(stamp.gtid, pa.string()), transactions)
            self.transactions[:transactions, Transaction.POS] = stamp.pos
            self.transactions[:transactions, Transaction.COMMITTED_AT] = stamp.committed_at
        for table_halves in halves:
            yield self._changes(table_halves, row_events, first, gtids, place)
        complete = transactions - 1 if is_open else transactions
        if complete:
            yield None, self._log(uuids[:complete], tags[:complete], file.number)
        if is_open:
            self.transactions[0] = self.transactions[transactions - 1]

    def stamp(self, transactions: int, file: FilePosition) -> Stamp:
        """The stamp of the open transaction, which is the last one; `transactions` is the count of all."""
        gtid, committed_at = self.last(transactions)
        return Stamp(file.number, int(self.transactions[transactions - 1, Transaction.POS]), committed_at, gtid)

    def last(self, transactions: int) -> tuple[str | None, int]:
        """The GTID and the commit time, in µs, of the last transaction; `transactions` is the count of all."""
        prefix, number, _, committed_at = self.transactions[transactions - 1].tolist()
        return self.prefixes.gtid(prefix, number), committed_at

    def _ordinals(self, rows: np.ndarray, halves: list[Halves], transactions: int, *, is_open: bool) -> np.ndarray:
        """The ordinal of the first half of each row event within its transaction.

        The first transaction may have halves in earlier batches; those of the last one are kept for later batches.
        """
        counts = np.zeros(len(rows), np.int64)
        for table_halves in halves:
            counts += np.bincount(table_halves.event, minlength=len(rows))
        halves_before = np.cumsum(counts) - counts
        transaction = rows[:, Row.TRANSACTION]
        before_transaction = halves_before[np.searchsorted(transaction, transaction)]
        first = halves_before - before_transaction + np.where(transaction == 0, self._halves, 0)
        last = transactions - 1
        of_last = int(counts[transaction == last].sum()) + (self._halves if last == 0 else 0)
        self._halves = of_last if is_open else 0
        return first

    def _changes(self, halves: Halves, rows: np.ndarray, first: np.ndarray, gtids: pa.Array, file: int) -> Part:
        """A batch of change rows: each half with its kind, its place, and its transaction's time and GTID."""
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
        """The batch of log rows of the complete transactions."""
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
