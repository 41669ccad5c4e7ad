"""What readers of a table's changelog get."""
