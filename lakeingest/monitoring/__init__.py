"""What a run tells the outside: log lines, its report, metrics, and notices. Nothing of that can fail the run."""
