"""The target edge: tables of the lake that hold their own progress."""
