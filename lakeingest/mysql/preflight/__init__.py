"""Preflight: the conditions that the source must meet before anything is read."""
