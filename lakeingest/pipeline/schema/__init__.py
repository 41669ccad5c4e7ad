"""Definitions of tables: the definition of a copy's rows, and how DDL brings the rows to the next definition."""
