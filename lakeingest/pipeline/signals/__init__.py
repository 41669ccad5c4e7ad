"""Signals: what people ask of a pipeline is read from its state folder, and carried out between batches."""
