"""The target of each format, by its name in pipeline.yml. `config.formats` has all other facts about a format."""

import importlib

from lakeingest.config import Config
from lakeingest.core.file_names import file_name
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import at, state_of
from lakeingest.lake.identity import owner_here
from lakeingest.lake.ownership import Adoptions, Ownership
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import Target
from lakeingest.lake.versions import Versions


def open_target(config: Config) -> Target:
    """The target of the configured format."""
    # imported where it is used: each takes long
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget

        staging, owned = state_of(config) / "staging", ownership_of(config)
        return HudiTarget(config.target, staging, keeps_dropped=config.keeps_dropped, ownership=owned)
    from lakeingest.lake.iceberg.target import IcebergTarget

    waiting, owned = state_of(config) / "waiting", ownership_of(config)
    return IcebergTarget(
        config.target, config.tables.of, keeps_dropped=config.keeps_dropped, waiting=waiting, ownership=owned
    )


def ownership_of(config: Config) -> Ownership:
    """The pipeline of this state folder, which knows the tables whose definitions it keeps."""
    definitions = state_of(config) / "definitions"
    return Ownership(lambda: owner_here(config), lambda table: (definitions / f"{file_name(str(table))}.json").exists())


def open_adoptions(config: Config) -> Adoptions:
    """The adoptions of the configured format's tables, by the pipeline of this state folder."""
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.adoptions import HudiAdoptions
        from lakeingest.lake.hudi.target import HudiTarget

        return HudiAdoptions(HudiTarget(config.target, state_of(config) / "staging"), owner_here(config))
    from lakeingest.lake.iceberg.adoptions import IcebergAdoptions
    from lakeingest.lake.iceberg.target import IcebergTarget

    return IcebergAdoptions(IcebergTarget(config.target), owner_here(config))


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

        owned = ownership_of(config)
        return HudiRollbacks(HudiTarget(config.target, state_of(config) / "staging", ownership=owned))
    from lakeingest.lake.iceberg.rollbacks import IcebergRollbacks
    from lakeingest.lake.iceberg.target import IcebergTarget

    return IcebergRollbacks(IcebergTarget(config.target, config.tables.of, ownership=ownership_of(config)))


def unwritable(config: Config) -> str | None:
    """Why the warehouse, which is in an object store, cannot be written to; None when it can."""
    if config.target.format == "hudi":
        try:
            at(config.target.warehouse, config.target.storage).probe()
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
