"""What a run knows, and what it works with: its tables, its binlog, its signals and its edges."""
