"""The shape of change rows: a row, its kind, and its place in the binlog."""

import enum
from dataclasses import dataclass, field
from typing import Any

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.keys import Key


class RowKind(enum.IntEnum):
    """The kind of a change row. The numbers give the order of the two change rows of an update: -U before +U."""

    INSERT = 0  # +I
    UPDATE_BEFORE = 1  # -U
    UPDATE_AFTER = 2  # +U
    DELETE = 3  # -D

    @property
    def is_delete(self) -> bool:
        """Whether this change row takes the old row away: -D, and also -U, because its +U brings the new row."""
        return self in {RowKind.UPDATE_BEFORE, RowKind.DELETE}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change row. `ordinal` counts the change rows of a transaction; the -U of an update comes before its +U."""

    kind: RowKind
    key: Key
    place: Place
    ordinal: int
    values: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def order(self) -> tuple[Place, int]:
        """The order in which change rows take effect."""
        return self.place, self.ordinal


# The spool's columns beside the table's own; no source column may begin with `_lakeingest_`.
KIND, EPOCH, FILE, POS, ORDINAL, COMMITTED_AT, GTID = (
    "_lakeingest_kind",
    "_lakeingest_epoch",
    "_lakeingest_file",
    "_lakeingest_pos",
    "_lakeingest_ordinal",
    "_lakeingest_committed_at",
    "_lakeingest_gtid",
)
PLACE = (EPOCH, FILE, POS)
ORDER = (*PLACE, ORDINAL)
ORIGIN = (KIND, *ORDER, COMMITTED_AT, GTID)

REREAD = 2**63 - 1  # the ordinal of a row that was read again: it takes effect after all changes up to its place

DELETED = "_lakeingest_deleted"  # the only added column of a collapsed change: True if the change deletes its key

# Columns that a copy may have beside the source's, with DELETED and COMMITTED_AT
OP, POSITION = "_lakeingest_op", "_lakeingest_position"
DATABASE, TABLE = "_lakeingest_database", "_lakeingest_table"
