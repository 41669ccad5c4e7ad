"""Requests of people to a pipeline: their signals are read, and carried out between batches."""
