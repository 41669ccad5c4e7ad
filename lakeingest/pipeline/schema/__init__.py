"""Definitions of tables: the one that a copy's rows have, and how the rows come over DDL to the next one."""
