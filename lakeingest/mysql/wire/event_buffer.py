"""Buffers the row events and transactions that `follow` and `segment` have read, and decodes them to Arrow batches."""

import uuid
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.binlog.position import DomainGtid, FilePosition, Gtid, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import concerning
from lakeingest.mysql.wire.charsets import UnknownCharset
from lakeingest.mysql.wire.events import Event
from lakeingest.mysql.wire.follow import Prefix, Row, Transaction
from lakeingest.mysql.wire.grammar import refusal
from lakeingest.mysql.wire.matching import matching_changes
from lakeingest.mysql.wire.row_events import RowImages, RowReader
from lakeingest.mysql.wire.table_map import read_table_map
from lakeingest.mysql.wire.xa import Stamp
from lakeingest.rows import INSTANT, TRANSACTIONS, Part, change_schema

_ROW_EVENTS = 16_384  # the capacity of the array of row events
_TRANSACTIONS = 8_192  # the capacity of the array of transactions
_NO_NUMBERS = (1, 0)  # the first and last number of an empty range
_NUMBER_MAX = int(np.iinfo(np.int64).max)


class GtidPrefixes:
    """The prefixes of GTIDs, each with an index. A prefix is the part of a GTID before its number.

    MySQL's prefix is the server's UUID and a tag, MariaDB's the domain and the server id. `table` (`follow.Prefix`) has
    the prefixes for the kernel `follow`, which leaves each GTID with a tag to `segment`.
    """

    def __init__(self, skip: GtidSet) -> None:
        self._skip = dict(skip.members)
        self._uuids_and_tags: list[tuple[str | None, str | None]] = []  # of each prefix; both None for MariaDB
        self._texts: list[str] = []  # of each prefix
        self.table = np.empty((0, len(Prefix)), np.int64)

    def index_of(self, gtid: Gtid | DomainGtid) -> int:
        """The index of the GTID's prefix; a new prefix is added."""
        text = str(gtid).removesuffix(str(gtid.number))
        if text not in self._texts:
            self._texts.append(text)
            self._add(gtid)
        return self._texts.index(text)

    def _add(self, gtid: Gtid | DomainGtid) -> None:
        """Add the UUID and tag of a GTID's prefix, and its row of `table`."""
        if isinstance(gtid, DomainGtid):
            self._uuids_and_tags.append((None, None))
            self.table = np.vstack([self.table, [gtid.domain, gtid.server, *_NO_NUMBERS]])
        else:
            uuid_and_tag = (gtid.uuid, gtid.tag)
            self._uuids_and_tags.append(uuid_and_tag)
            if not gtid.tag:
                uuid_halves = np.frombuffer(uuid.UUID(gtid.uuid).bytes, np.int64)
                ranges_to_skip = self._skip.get(uuid_and_tag, (_NO_NUMBERS,))
                least, greatest = ranges_to_skip[-1]  # the kernel knows only the last range
            else:  # the kernel does not read tags: with these numbers it finds no GTID of this prefix
                uuid_halves = np.zeros(2, np.int64)
                least = greatest = _NUMBER_MAX
            self.table = np.vstack([self.table, [*uuid_halves, least, greatest]])

    def gtid(self, prefix: int, number: int) -> str | None:
        """The text of the GTID with a number and the prefix with this index; None if the index is −1."""
        return None if prefix < 0 else f"{self._texts[prefix]}{number}"

    def columns(self, indexes: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The UUIDs, the tags and the texts of the prefixes with these indexes.

        UUID and tag are null for a prefix of MariaDB. All three are null for the index −1.
        """
        chosen = pa.array(indexes, mask=indexes < 0)  # null for −1
        uuids = pa.array([uuid_ for uuid_, _ in self._uuids_and_tags], pa.string())
        tags = pa.array([tag for _, tag in self._uuids_and_tags], pa.string())
        texts = pa.array(self._texts, pa.string())
        return uuids.take(chosen), tags.take(chosen), texts.take(chosen)


class EventBuffer:
    """Buffers row events (`follow.Row`) and transactions (`follow.Transaction`), in binlog order.

    All that is buffered at a time is of one binlog file. With `stamp`, all change rows get the place, commit time and
    GTID of the transaction `stamp`.
    """

    def __init__(self, segment: Segment, schemas: Iterable[TableSchema], stamp: Stamp | None = None) -> None:
        self._stamp = stamp
        self._epoch = segment.epoch
        self._types = {schema.table: change_schema(schema) for schema in schemas}
        self.prefixes = GtidPrefixes(segment.skip)
        self.reader = RowReader()
        self.rows = np.empty((_ROW_EVENTS, len(Row)), np.int64)
        self.transactions = np.empty((_TRANSACTIONS, len(Transaction)), np.int64)
        self._images_before = 0  # the number of the open transaction's row images that are in earlier batches

    def add_table(self, schema: TableSchema, event: Event, at: FilePosition, *, is_mariadb: bool) -> int:
        """Add a copied table to `reader`, as a TABLE_MAP event at `at` describes it; return the table's number there.

        Raises SchemaChanged if the event has other columns than the schema, UnsupportedEvent for an unknown charset.
        """
        with concerning(schema.table):
            try:
                return self.reader.add(schema, read_table_map(event, is_mariadb=is_mariadb), f"at {at}")
            except UnknownCharset as error:
                what, _, fix = str(error).partition("; ")  # the two parts of the error's message
                raise refusal(what, fix, at) from error

    def parts(
        self, data: np.ndarray, rows: int, transactions: int, file: FilePosition, *, is_open: bool
    ) -> Iterator[Part]:
        """Decode the buffered row events and transactions: yield the batches of change rows, then a batch of log rows.

        A log row records a transaction (`rows.TRANSACTIONS`). `data` has the bytes of the row events. `rows` and
        `transactions` are the numbers of buffered row events and transactions. With `is_open`, the last transaction is
        not complete: it gets no log row, and stays in the buffer as the first transaction.
        """
        row_events = self.rows[:rows]
        images = list(self.reader.read(data, row_events, file.file))
        ordinals = self._first_ordinals(row_events, images, transactions, is_open=is_open)
        uuids, tags, prefixes = self.prefixes.columns(self.transactions[:transactions, Transaction.PREFIX])
        stamp = self._stamp
        if stamp is None:
            file_number = file.number
            numbers = pa.array(self.transactions[:transactions, Transaction.NUMBER])
            gtids = pc.binary_join_element_wise(prefixes, numbers.cast(pa.string()), "")  # of each transaction
        else:  # the only buffered transaction is the prepared one: its change rows get `stamp`
            file_number = stamp.file
            gtids = pa.repeat(pa.scalar(stamp.gtid, pa.string()), transactions)
            self.transactions[:transactions, Transaction.POS] = stamp.pos
            self.transactions[:transactions, Transaction.COMMITTED_AT] = stamp.committed_at
        for table_images in images:
            schema = self.reader.schema(table_images.table)
            batch = matching_changes(self._change_batch(table_images, row_events, ordinals, gtids, file_number), schema)
            if batch.num_rows:
                yield schema.table, batch
        complete_count = transactions - 1 if is_open else transactions
        if complete_count:
            yield None, self._log_batch(uuids[:complete_count], tags[:complete_count], file.number)
        if is_open:
            self.transactions[0] = self.transactions[transactions - 1]

    def stamp_of_last(self, transactions: int, file: FilePosition) -> Stamp:
        """The stamp of the last buffered transaction; `transactions` is the number of buffered transactions."""
        gtid, committed_at = self.gtid_and_time_of_last(transactions)
        return Stamp(file.number, int(self.transactions[transactions - 1, Transaction.POS]), committed_at, gtid)

    def gtid_and_time_of_last(self, transactions: int) -> tuple[str | None, int]:
        """The GTID and commit time (µs) of the last transaction; `transactions` is the number of buffered ones."""
        prefix, number, _, committed_at = self.transactions[transactions - 1].tolist()
        return self.prefixes.gtid(prefix, number), committed_at

    def _first_ordinals(
        self, rows: np.ndarray, images: list[RowImages], transactions: int, *, is_open: bool
    ) -> np.ndarray:
        """For each row event, the ordinal of its first row image within its transaction. Updates `_images_before`.

        The first transaction may have images in earlier batches: their number is `_images_before`. With `is_open`, the
        last transaction is the first of the next batches, so `_images_before` becomes the number of its images in
        these batches and earlier ones; otherwise 0.
        """
        image_counts = np.zeros(len(rows), np.int64)  # by row event
        for table_images in images:
            image_counts += np.bincount(table_images.event, minlength=len(rows))
        before_event = np.cumsum(image_counts) - image_counts  # the number of buffered images before each row event
        transaction = rows[:, Row.TRANSACTION]
        # `searchsorted` finds the first row event of each event's transaction
        before_transaction = before_event[np.searchsorted(transaction, transaction)]
        in_earlier_batches = np.where(transaction == 0, self._images_before, 0)
        ordinals = before_event - before_transaction + in_earlier_batches
        last = transactions - 1
        last_count = int(image_counts[transaction == last].sum())
        if last == 0:  # the last transaction is also the first
            last_count += self._images_before
        self._images_before = last_count if is_open else 0
        return ordinals

    def _change_batch(
        self, images: RowImages, rows: np.ndarray, ordinals: np.ndarray, gtids: pa.Array, file: int
    ) -> pa.RecordBatch:
        """A batch of change rows: each row image with its kind, its place, and its transaction's commit time and GTID.

        `ordinals` has the ordinal of each row event's first image, `gtids` the GTID of each transaction. `file` is the
        number of the file.
        """
        schema = self.reader.schema(images.table)
        transaction = rows[images.event, Row.TRANSACTION]  # of each image: the index of its transaction
        image_count = len(images.kind)
        origin = [
            pa.array(images.kind),
            pa.repeat(pa.scalar(self._epoch, pa.int32()), image_count),
            pa.repeat(pa.scalar(file, pa.int64()), image_count),
            pa.array(self.transactions[transaction, Transaction.POS]),
            pa.array(ordinals[images.event] + images.within),
            pa.array(self.transactions[transaction, Transaction.COMMITTED_AT]).cast(INSTANT),
            gtids.take(pa.array(transaction)),
        ]
        return pa.RecordBatch.from_arrays([*origin, *images.columns], schema=self._types[schema.table])

    def _log_batch(self, uuids: pa.Array, tags: pa.Array, file: int) -> pa.RecordBatch:
        """The batch of log rows of the first transactions in the buffer, as many as there are `uuids`.

        `uuids` and `tags` are parts of the GTIDs of these transactions, `file` is the number of the file.
        """
        complete = self.transactions[: len(uuids)]
        numbers = complete[:, Transaction.NUMBER]
        columns = [
            uuids,
            tags,
            pa.array(numbers, mask=np.asarray(uuids.is_null())),  # null without a GTID, and on MariaDB
            pa.repeat(pa.scalar(self._epoch, pa.int32()), len(complete)),
            pa.repeat(pa.scalar(file, pa.int64()), len(complete)),
            pa.array(complete[:, Transaction.POS]),
            pa.array(complete[:, Transaction.COMMITTED_AT]).cast(INSTANT),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TRANSACTIONS)
