"""The stages of a run, a room for each. It is the only package that sees every edge.

It owns the order of things, which is in `rounds`, and not the algorithm, which is in `lakeingest.core`.
"""
