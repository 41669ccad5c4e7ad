"""Decodes MySQL's bytes to Arrow columns: a SELECT and the binlog get the same types and values. Pure: no sockets."""
