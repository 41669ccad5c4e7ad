"""The source edge: MySQL's rows, binlog and definitions, as Arrow batches and values of the core."""
