"""Staging for formats without branches: a folder of ours, whose commits no reader of the table sees."""
