"""What a run tells the outside: log lines, report, metrics, spans, notices and lineage. No failure here fails it."""
