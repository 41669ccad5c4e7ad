"""Files of rows and of deletes: how they are made, found, read and counted."""
