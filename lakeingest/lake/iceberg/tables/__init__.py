"""What a table of ours is: its history, properties, folder, columns and form."""
