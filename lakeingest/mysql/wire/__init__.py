"""MySQL values to Arrow columns. Pure: no sockets. Snapshot and binlog give a column the same type and values."""
