"""How a run begins: where each copy stands, which spool goes on, and on which server."""
