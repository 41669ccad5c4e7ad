"""The engine edge: a Spark session, functions scattered over its executors, change rows as DataFrames."""
