"""What a run tells the outside: log lines, report, metrics, spans, notices and lineage. No error here fails a run."""
