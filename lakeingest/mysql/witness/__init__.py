"""The witness: a second decoder of the rows in a segment of the binlog.

It reads row events slowly, by the library mysql-replication, so it does not share the faults of the fast decoder. A run
compares the two for stretches of each segment (`stretch`, `difference`), and tests compare them, too. With
LAKEINGEST_WIRE=reference, a run uses the witness in place of the fast decoder (`decoder`). Only `mysql.decoders`
chooses between the two.

The library drops or misreads XA transactions, compressed transactions, and the columns that `gaps` lists. A stretch
leaves them out, and says so by name. The decoder of a whole segment refuses them. It also refuses tagged GTIDs, GTIDs
of MariaDB, and row events of version 1, and it cannot lift a table over DDL.
"""

from lakeingest.mysql.witness.decoder import rows_in

__all__ = ["rows_in"]
