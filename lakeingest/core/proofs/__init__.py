"""Whether the copy is the source, a commit the spool, and the spool the binlog."""
