"""The spool: the stored changelog."""
