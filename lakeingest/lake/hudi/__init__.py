"""Apache Hudi as a target."""
