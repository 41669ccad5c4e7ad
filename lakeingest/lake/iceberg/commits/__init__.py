"""Commits: how tables are made, published, audited, recovered and discarded."""
