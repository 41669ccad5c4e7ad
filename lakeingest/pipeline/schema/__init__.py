"""Definitions of tables: the definition that a copy's rows have, and how DDL brings the rows to the next one."""
