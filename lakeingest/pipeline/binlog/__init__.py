"""The binlog, read once for all tables of a run: into the spool, and how far reads of rows may count on it."""
