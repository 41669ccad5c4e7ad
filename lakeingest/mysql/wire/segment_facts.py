"""Facts of a segment of the binlog, which its reader returns beside the rows."""

from collections import Counter
from dataclasses import dataclass, field

from lakeingest.core.binlog.history import History
from lakeingest.core.copies.prepared import Pending
from lakeingest.core.tables.schema import TableId


@dataclass(slots=True)
class SegmentFacts:
    """Facts of a segment as a whole.

    `nulled` counts, by table, the values of new rows that are NULL only because the user chose so. `history` is
    what was seen of the binlog's history at the segment's stop; None if the segment was not read. `pending` has the XA
    transactions that are prepared at the stop, and the XA transactions that ended in the segment. `met` are all tables
    with row events in the segment, also tables that are not copied. `lacks_cascades`: True if at least one row event
    lacks the flag which says that changes by foreign keys are row events, too.
    """

    nulled: Counter[TableId] = field(default_factory=Counter)
    history: History | None = None
    pending: Pending = field(default_factory=Pending)
    met: set[TableId] = field(default_factory=set)
    lacks_cascades: bool = False
