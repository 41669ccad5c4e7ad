"""Rows that are read again while the log goes on: compared with the copy, and kept as patches for the next merge."""
