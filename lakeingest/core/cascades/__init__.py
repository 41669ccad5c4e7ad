"""Which rows foreign keys may have changed unseen."""
