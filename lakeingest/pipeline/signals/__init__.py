"""What people ask of a pipeline: reading their signals, and carrying them out between batches."""
