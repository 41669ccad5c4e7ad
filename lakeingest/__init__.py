"""lakeingest: exact, lock-free copies of MySQL tables in Apache Iceberg, kept equal to the source."""

from lakeingest.config import Config, load_config
from lakeingest.errors import LakeIngestError, OperatorNeeded, RestartNeeded, Retryable, UsageError

__version__ = "0.1.0"

__all__ = [
    "Config",
    "LakeIngestError",
    "OperatorNeeded",
    "RestartNeeded",
    "Retryable",
    "UsageError",
    "load_config",
]
