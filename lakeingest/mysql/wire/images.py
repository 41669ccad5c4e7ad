"""Finds the columns that are missing in the row images of a row event, and writes the message about them.

Source: MySQL's source documentation, "Rows_event" (versions 1 and 2).
"""

from collections.abc import Sequence

from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.wire.events import Cursor, Type

_HEADER = 19  # bytes of an event's header
_POST_HEADER = 8  # bytes of table id and flags, which follow the header
_UPDATES = frozenset({Type.UPDATE_ROWS_V1, Type.UPDATE_ROWS})
_WITH_EXTRA = frozenset({Type.WRITE_ROWS, Type.UPDATE_ROWS, Type.DELETE_ROWS})

LEAVE_OUT = "leave generated columns out with types: {generated: skip} in tables.options"


def missing_columns(event: bytes, names: Sequence[str]) -> frozenset[str]:
    """The columns that are missing in a row event's image; `names` are all columns of the table, in order.

    Of an update, which has two images for each row: the columns that are missing in the old or the new image. `event`
    has the event's bytes with the header. Raises Damaged if the event is cut.
    """
    event_type = event[4]  # in the header
    body = Cursor(event, _HEADER)
    body.take(_POST_HEADER)
    if event_type in _WITH_EXTRA:
        body.take(body.number(2) - 2)  # extra data: its size counts these two bytes, too
    column_count = body.packed()
    image_count = 2 if event_type in _UPDATES else 1  # of each row
    bitmaps = [body.number((column_count + 7) // 8) for _ in range(image_count)]  # a bit is 1 if the column is there
    in_each = bitmaps[0] & bitmaps[-1]  # a single bitmap is both the first and the last one
    return frozenset(name for index, name in enumerate(names) if not (in_each >> index & 1))


def not_full_message(schema: TableSchema, lacking: frozenset[str]) -> str:
    """The message, with the fix, for a row image in which the columns `lacking` are missing."""
    all_generated = [schema.column(name).source_name for name in schema.generated]
    generated = ", ".join(name for name in all_generated if name in lacking)
    if lacking <= {*all_generated, *schema.skipped}:  # only generated columns are missing
        return f"the row image lacks the generated columns {generated}; {LEAVE_OUT}, then copy the table again"
    return "row image not FULL; set binlog_row_image=FULL in every session, then copy the table again"
