"""How a copy begins, or begins again: without rows, or over a gap, with the rows that it has."""
