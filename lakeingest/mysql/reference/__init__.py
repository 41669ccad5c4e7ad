"""The slow path, on well-kept libraries: what the fast one is held equal to; LAKEINGEST_WIRE=reference takes it."""
