"""State: what a pipeline stores beside the lake, and the lease that guards it."""
