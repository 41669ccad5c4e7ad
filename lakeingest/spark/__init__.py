"""Everything about Spark itself: the session and its settings, and functions that run on the executors."""
