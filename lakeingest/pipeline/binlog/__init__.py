"""The binlog is read into the spool, once for all tables of a run. `coverage` extends the spool back for a table."""
