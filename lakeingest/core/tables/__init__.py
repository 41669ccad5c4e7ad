"""What a table is: columns, keys and types, and which of its columns and rows are copied."""
