"""What runs cost, how fresh copies are, and who is told."""
