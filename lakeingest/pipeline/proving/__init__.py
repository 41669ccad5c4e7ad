"""Source and copy are compared: by `verify` when a person asks, and range by range while a run is at work."""
