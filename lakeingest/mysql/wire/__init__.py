"""MySQL's bytes to Arrow columns, with the same types and values from a SELECT and from the binlog. Pure: no sockets."""
