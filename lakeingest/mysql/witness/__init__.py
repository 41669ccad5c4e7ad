"""The witness: a second decoder that answers which rows a stretch of the binlog holds.

It reads row events slowly, by the library mysql-replication, and so it does not share the faults of the fast decoder.
The tests compare the two decoders. With LAKEINGEST_WIRE=reference, a run uses the witness if the fast decoder must not
be used. Only `mysql.decoders` chooses between them.

The library drops or misreads XA transactions, compressed transactions, tagged GTIDs, GTIDs of MariaDB, row events of
version 1, and columns that `values.require_readable` refuses. The witness refuses all these by name. It lifts no table
over DDL.
"""

from lakeingest.mysql.witness.decoder import rows_in

__all__ = ["rows_in"]
