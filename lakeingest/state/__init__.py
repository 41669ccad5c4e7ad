"""The state folder of a pipeline: its documents, and the lease that lets only one run write them.

A write that fails raises StorageFailed; in an object store that does not answer, StorageAway.
"""
