"""Preflight: what the source must be before anything is read."""
