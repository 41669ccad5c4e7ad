"""State that is not in the target: the spool."""
