"""How a copy begins, or begins again: empty, or over a gap with the rows that it has."""
