"""Rows that are read again while changes are spooled: compared with the copy, and kept as patches until a merge."""
