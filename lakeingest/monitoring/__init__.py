"""What a run tells the outside: metrics, and notices to a webhook. Nothing of that can fail the run."""
