"""The target of each format, by its name in pipeline.yml. `config.formats` has all other facts about a format."""

import importlib

from lakeingest.config import Config
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import at, probe, state_of
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import Target
from lakeingest.lake.versions import Versions


def open_target(config: Config) -> Target:
    """The target of the configured format."""
    # imported where it is used: each takes long
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget

        return HudiTarget(config.target, state_of(config) / "staging", keeps_dropped=config.keeps_dropped)
    from lakeingest.lake.iceberg.target import IcebergTarget

    waiting = state_of(config) / "waiting"
    return IcebergTarget(config.target, config.tables.of, keeps_dropped=config.keeps_dropped, waiting=waiting)


def open_versions(config: Config) -> Versions:
    """The versions of the configured format's tables."""
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget
        from lakeingest.lake.hudi.versions import HudiVersions

        return HudiVersions(HudiTarget(config.target, state_of(config) / "staging"))
    from lakeingest.lake.iceberg.target import IcebergTarget
    from lakeingest.lake.iceberg.versions import IcebergVersions

    return IcebergVersions(IcebergTarget(config.target))


def open_rollbacks(config: Config) -> Rollbacks:
    """The rollbacks of the configured format's tables."""
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.rollbacks import HudiRollbacks
        from lakeingest.lake.hudi.target import HudiTarget

        return HudiRollbacks(HudiTarget(config.target, state_of(config) / "staging"))
    from lakeingest.lake.iceberg.rollbacks import IcebergRollbacks
    from lakeingest.lake.iceberg.target import IcebergTarget

    return IcebergRollbacks(IcebergTarget(config.target))


def unwritable(config: Config) -> str | None:
    """Why the warehouse, which is in an object store, cannot be written to; None when it can."""
    if config.target.format == "hudi":
        try:
            probe(at(config.target.warehouse, config.target.storage))
        except (LakeIngestError, OSError) as error:
            return f"the warehouse {config.target.warehouse} cannot be written: {error}"
        return None
    from lakeingest.lake.iceberg import store

    return store.unwritable(config.target)


def governed(config: Config) -> tuple[str, ...] | None:
    """What rights in Lake Formation a run lacks, each with its fix; None where nobody can tell."""
    if config.target.catalog.type != "glue":
        return None
    from lakeingest.lake.iceberg import lake_formation

    try:
        return lake_formation.findings(config.target)
    except LakeIngestError:
        return None


def import_writers() -> None:
    """Import what executors write with, before their first task; what takes long is Iceberg's."""
    importlib.import_module("lakeingest.lake.iceberg.target")
