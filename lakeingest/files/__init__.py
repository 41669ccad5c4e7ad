"""Files of a pipeline's state, in a folder of this machine or in an object store, with one set of operations."""
