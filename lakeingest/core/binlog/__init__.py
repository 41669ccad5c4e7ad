"""Where something is in the binlog: positions, histories, segments, and how far readers are."""
