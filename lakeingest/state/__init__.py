"""State: what a pipeline keeps beside the lake, and the lease that guards it."""
