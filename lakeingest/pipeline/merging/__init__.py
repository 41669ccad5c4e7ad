"""Changes of the spool become rows of the copy, in one commit on staging."""
