"""The table in which readers find the rows of all shards."""
