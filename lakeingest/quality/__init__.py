"""Checks between stages, and the proof that source and target are equal."""
