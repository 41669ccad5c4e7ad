"""The commands: one file for each."""
