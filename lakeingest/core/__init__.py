"""The algorithm, pure: values in, values out. No clock, log, socket or Spark."""
