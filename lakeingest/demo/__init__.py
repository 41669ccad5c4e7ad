"""The demo: a local source server, a sample shop, writers, and the report."""
