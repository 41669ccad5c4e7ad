"""The stages of a run, a room for each. Beside `commands`, it is the only package that sees every edge.

It owns the order of the stages, which is in `rounds`. The algorithm is in `lakeingest.core`.
"""
