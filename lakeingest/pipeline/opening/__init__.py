"""How a run begins: at which position each copy is, which spool continues, and on which server."""
