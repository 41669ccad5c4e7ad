"""The gaps of the library mysql-replication: what it drops or misreads. The witness leaves out nothing else.

`docs/guarantees.md` has the same list for users.
"""

from lakeingest.core.tables.schema import GEOMETRIES, Column, Kind
from lakeingest.mysql.wire.events import Type
from lakeingest.mysql.wire.refusals import is_chosen

# The types that the library misreads, by the servers' names
MISREAD = GEOMETRIES | {"bit", "inet4", "inet6", "json", "set", "time", "uuid", "vector", "year"}
CHARSETS = frozenset({"ascii", "utf8mb3", "utf8mb4"})  # that Python decodes in the same way as MySQL

# Transactions that the library drops
OF_XA, COMPRESSED = "transactions of XA", "compressed transactions"

# The types of events that a run with LAKEINGEST_WIRE=reference refuses, although `wire` reads them
BEYOND: dict[int, tuple[str, str]] = {
    **dict.fromkeys(
        (Type.WRITE_ROWS_V1, Type.UPDATE_ROWS_V1, Type.DELETE_ROWS_V1),
        ("a row event of version 1", "set log_bin_use_v1_row_events=OFF on the source"),
    ),
    Type.XA_PREPARE: ("an XA_PREPARE event (the reference decoder reads no XA)", "unset LAKEINGEST_WIRE"),
    Type.TRANSACTION_PAYLOAD: (
        "a TRANSACTION_PAYLOAD event (compressed)",
        "set binlog_transaction_compression=OFF in every session",
    ),
    Type.GTID_TAGGED: (
        "a GTID_TAGGED event (tagged GTIDs are not built yet)",
        "use no tags in gtid_next on the source",
    ),
    Type.DOMAIN_GTID: ("a GTID event of MariaDB", "unset LAKEINGEST_WIRE"),
}


def gap_of_column(column: Column, charset: str = "utf8mb4") -> str:
    """Why the library does not read every value of the column, whose texts are in `charset`, exactly; '' if it does."""
    if is_chosen(column):
        return f"type {column.source_type.name}, mapped as chosen"
    if column.source_type.name in MISREAD:
        return f"type {column.source_type.name}"
    if column.kind is Kind.STRING and charset not in CHARSETS:
        return f"charset {charset}"
    return ""
