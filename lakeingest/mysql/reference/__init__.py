"""The slow path, on well-known libraries: the reference for the fast path. LAKEINGEST_WIRE=reference selects it."""
