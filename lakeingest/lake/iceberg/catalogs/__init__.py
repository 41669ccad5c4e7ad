"""The catalogs, each with limits of time and requests that are sent once."""
