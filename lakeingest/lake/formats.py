"""The target of each format, by its name in pipeline.yml. `config.formats` has all other facts about a format."""

import importlib

from lakeingest.config import Config
from lakeingest.lake.target import Target
from lakeingest.lake.versions import Versions


def open_target(config: Config) -> Target:
    """The target of the configured format."""
    # imported where it is used: each takes long
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget

        return HudiTarget(config.target, config.state.path / "staging")
    from lakeingest.lake.iceberg.target import IcebergTarget

    return IcebergTarget(config.target, config.tables.of)


def open_versions(config: Config) -> Versions:
    """The versions of the configured format's tables."""
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget
        from lakeingest.lake.hudi.versions import HudiVersions

        return HudiVersions(HudiTarget(config.target, config.state.path / "staging"))
    from lakeingest.lake.iceberg.target import IcebergTarget
    from lakeingest.lake.iceberg.versions import IcebergVersions

    return IcebergVersions(IcebergTarget(config.target))


def unwritable(config: Config) -> str | None:
    """Why the warehouse, which is in an object store, cannot be written to; None when it can."""
    from lakeingest.lake.iceberg import store

    return store.unwritable(config.target)


def import_writers() -> None:
    """Import what executors write with, before their first task; what takes long is Iceberg's."""
    importlib.import_module("lakeingest.lake.iceberg.target")
