"""The witness: a second answer to one question, which rows this stretch of the binlog holds.

It reads row events slowly, by the library mysql-replication, and so it does not share the faults of the fast decoder.
The tests compare the two; with LAKEINGEST_WIRE=reference, a run goes on where the fast one must not be used. Only
`mysql.decoders` knows which of them answers.

It refuses by name what the library drops or misreads: XA transactions, compressed transactions, tagged GTIDs, GTIDs of
MariaDB, row events of version 1, and columns that `values.require_readable` refuses. It lifts no table over DDL.
"""

from lakeingest.mysql.witness.decoder import rows_in

__all__ = ["rows_in"]
