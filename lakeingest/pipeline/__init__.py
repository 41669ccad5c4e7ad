"""The stages of a run, with one folder for each stage.

Only this package and `commands` import the source, the lake, the spool, the state and Spark together. The order of the
stages is in `rounds`, the algorithm is in `lakeingest.core`.
"""
