"""MySQL values to Arrow columns, pure: no sockets. Both paths, snapshot and binlog, come to the same type and value."""
