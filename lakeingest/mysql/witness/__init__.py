"""The witness: a second decoder of the rows in a segment of the binlog.

It reads row events slowly, by the library mysql-replication, so it does not share the faults of the fast decoder. The
tests compare the two decoders. With LAKEINGEST_WIRE=reference, a run uses the witness in place of the fast decoder.
Only `mysql.decoders` chooses between the two.

The library drops or misreads XA transactions, compressed transactions, tagged GTIDs, GTIDs of MariaDB, row events of
version 1, and columns that `values.require_readable` refuses. The witness refuses all these by name. A run with the
witness cannot lift a table over DDL.
"""

from lakeingest.mysql.witness.decoder import rows_in

__all__ = ["rows_in"]
