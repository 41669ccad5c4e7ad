"""The source: rows, binlog and definitions of MySQL and MariaDB, as Arrow batches and values of the core."""
