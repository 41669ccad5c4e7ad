"""The binlog, read once for all tables of a run into the spool, and from where on the spool has a table's changes."""
