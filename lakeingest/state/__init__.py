"""The state folder of a pipeline: its documents, and the lease that lets only one run write them."""
