"""lakeingest: exact, lock-free copies of MySQL tables in Apache Iceberg or Apache Hudi, kept equal to the source."""

import importlib
from typing import TYPE_CHECKING, Any

from lakeingest.version import VERSION

if TYPE_CHECKING:
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

__version__ = VERSION

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

_MODULES = {"Pipeline": "lakeingest.api", "Config": "lakeingest.config", "load_config": "lakeingest.config"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because executors and `lakeingest --help` use none of these names."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "lakeingest.errors")), name)
    globals()[name] = value
    return value
