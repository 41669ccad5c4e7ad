"""Rows that foreign keys change outside the binlog: which these are, and reading them again."""
