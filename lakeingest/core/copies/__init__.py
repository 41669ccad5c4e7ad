"""How far the copy of a table is, and what may happen to it next."""
