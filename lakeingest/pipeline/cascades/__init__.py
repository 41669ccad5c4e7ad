"""Rows that foreign keys change outside the binlog: they are found, and read again."""
