"""lakeingest: exact, lock-free copies of MySQL tables in Apache Iceberg or Apache Hudi, kept equal to the source."""

from lakeingest.api import Pipeline
from lakeingest.config import Config, load_config
from lakeingest.errors import (
    CheckFailed,
    ConfigError,
    GateFailed,
    LakeIngestError,
    NotBuiltYet,
    OperatorNeeded,
    RestartNeeded,
    Retryable,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "CheckFailed",
    "Config",
    "ConfigError",
    "GateFailed",
    "LakeIngestError",
    "NotBuiltYet",
    "OperatorNeeded",
    "Pipeline",
    "RestartNeeded",
    "Retryable",
    "UsageError",
    "load_config",
]
