"""The target edge: tables of the lake, which carry their own progress."""
