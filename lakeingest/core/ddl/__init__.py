"""What DDL does to the rows of a copy."""
