"""What a run tells the outside: metrics, spans, notices and lineage. Nothing of that can fail the run."""
