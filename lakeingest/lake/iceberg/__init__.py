"""Apache Iceberg as a target."""
