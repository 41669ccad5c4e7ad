"""Staging for formats without branches: a folder in the state, whose commits no reader of the table sees."""
