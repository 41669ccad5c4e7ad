"""What a run tells the outside: log lines, report, metrics, spans, notices and lineage. It never fails a run."""
