"""How changes come into a table, and how its small files are put together."""
