"""The values that a run works with: its tables, its binlog, its signals and its edges."""
