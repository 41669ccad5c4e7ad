"""The binlog is read into the spool, once for all tables of a run. `coverage`: from where on the spool has a table."""
