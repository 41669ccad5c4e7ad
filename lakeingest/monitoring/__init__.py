"""What a run tells the outside: log lines, report, metrics, spans, notices and lineage. Nothing of that can fail it."""
