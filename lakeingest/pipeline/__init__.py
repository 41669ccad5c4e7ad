"""The stages: the only package that sees every edge. It owns the order of things, not the algorithm."""
