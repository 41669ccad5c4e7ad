"""The chunks of a table: planned, read by executors and committed, wave by wave."""
