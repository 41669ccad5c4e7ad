"""A staging commit passes its gates, and readers see it."""
