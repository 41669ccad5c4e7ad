"""MySQL's bytes to Arrow columns, with the same types and values for a SELECT and the binlog. Pure: no sockets."""
