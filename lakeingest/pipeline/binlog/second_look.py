"""The second look of a task at the segment that it has decoded: a part is read again by the slow decoder.

It takes place before anything refers to the files of the segment, so a row about which the decoders disagree reaches no
reader.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakeingest.config import Source
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.proofs.witness import Difference, Look, Looked, Stint, first_stint
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import DecodersDisagree
from lakeingest.files.file import File
from lakeingest.mysql.second_reading import Place, second_reading, uses_slow_decoders
from lakeingest.pipeline.run.profile import Profile
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_rows import SegmentRows

STAGE = "binlog: second decoder"
_LONG = "rows of a long transaction after its first million"


def look_again(
    look: Look,
    source: Source,
    segment: Segment,
    schemas: Mapping[TableId, TableSchema],
    waiting: Mapping[TableId, TableSchema],
    folder: File,
    manifest: Manifest,
) -> tuple[Looked, Profile]:
    """Compare a part of a decoded segment with what the slow decoder makes of it.

    Returns what was compared, and the cost.

    Raises DecodersDisagree for the first table that differs, SourceAway if the part cannot be read.
    """
    looked, profile = Looked(), Profile()
    rows = SegmentRows(folder, manifest)
    if look.is_empty or not rows.changed or uses_slow_decoders():
        return looked, profile
    with profile.stage(STAGE):
        stint = first_stint(look, rows.changed, len(rows.transactions))
        # it is a sample if no table in it has another reason to be compared
        looked.is_sample = stint is not None and not stint.tables & (look.everything | look.first)
        while stint is not None:
            stint = _compare(stint, look, source, segment, schemas, waiting, rows, looked)
    looked.seconds = sum(cost.cpu for cost in profile.stages)
    return looked, profile


def _compare(
    stint: Stint,
    look: Look,
    source: Source,
    segment: Segment,
    schemas: Mapping[TableId, TableSchema],
    waiting: Mapping[TableId, TableSchema],
    rows: SegmentRows,
    looked: Looked,
) -> Stint | None:
    """Compare the rows of `stint`, and add to `looked` what was compared. Raises DecodersDisagree if a row differs.

    Returns the next stint if all rows of the tables are to be compared, and transactions are left; otherwise None.
    """
    places = rows.transactions
    number = rows.first_transaction(stint.tables) if stint.transaction is None else stint.transaction
    before = places[number - 1] if number else None
    first = places[number]

    def rows_until(table: TableId, last: Place, most: int | None) -> pa.Table:
        """The table's decoded rows from the stint's first transaction to the transaction `last`, at most `most`."""
        return rows.rows(table, first, last, most)

    compared = second_reading(source, segment, schemas, waiting, stint, before, first, rows_until)
    for difference in compared.differences[:1]:  # the error names the first one alone
        raise disagreement(difference, masked=look.masked)
    looked.rows += compared.rows
    looked.unread += compared.unread
    if not stint.tables & look.everything:
        return None
    if compared.is_partial:
        looked.unread[_LONG] += 1
    # None: no transaction could be compared, not even the one with this number
    following = number + 1 if compared.last is None else bisect_right(places, compared.last)
    return replace(stint, transaction=following) if following < len(places) else None


def disagreement(difference: Difference, *, masked: bool) -> DecodersDisagree:
    """The error that stops the table of the difference. `masked`: the message does not show values."""
    error = DecodersDisagree(
        f"{difference.table}: {difference.line(masked=masked)}; nothing of that was copied;"
        " run: lakeingest explain DecodersDisagree"
    )
    error.tables, error.difference = frozenset({difference.table}), difference
    return error
