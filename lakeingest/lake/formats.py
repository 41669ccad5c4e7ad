"""The ports of the configured lake format. `config.formats` has all other facts about a format."""

import importlib
from collections.abc import Callable, Mapping

from lakeingest.config import Config
from lakeingest.config.target import FormatName
from lakeingest.core.file_names import file_name
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.lake.format_package import FormatPackage
from lakeingest.lake.identity import owner_here
from lakeingest.lake.ownership import Adoptions, Ownership
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import OpenSpark, Target, no_spark
from lakeingest.lake.versions import Versions


def _iceberg() -> FormatPackage:
    from lakeingest.lake.iceberg.package import ICEBERG

    return ICEBERG


def _hudi() -> FormatPackage:
    from lakeingest.lake.hudi.package import HUDI

    return HUDI


# functions, because the import of each package takes long
_PACKAGES: Mapping[FormatName, Callable[[], FormatPackage]] = {"iceberg": _iceberg, "hudi": _hudi}


def package_of(config: Config) -> FormatPackage:
    """The package of the configured format."""
    return _PACKAGES[config.target.format]()


def open_target(config: Config, open_spark: OpenSpark = no_spark) -> Target:
    """The target of the configured format; without Spark for those who neither read its rows nor publish."""
    return package_of(config).target(config, ownership_of(config), open_spark)


def ownership_of(config: Config) -> Ownership:
    """The pipeline of this state folder, which knows the tables whose definitions it keeps."""
    definitions = state_of(config) / "definitions"
    return Ownership(lambda: owner_here(config), lambda table: (definitions / f"{file_name(str(table))}.json").exists())


def open_adoptions(config: Config) -> Adoptions:
    """The adoptions of the configured format's tables, by the pipeline of this state folder."""
    return package_of(config).adoptions(config, owner_here(config))


def open_versions(config: Config) -> Versions:
    """The versions of the configured format's tables."""
    return package_of(config).versions(config)


def open_rollbacks(config: Config) -> Rollbacks:
    """The rollbacks of the configured format's tables."""
    return package_of(config).rollbacks(config, ownership_of(config))


def unwritable(config: Config) -> str | None:
    """Why the warehouse, which is in an object store, cannot be written to; None when it can."""
    return package_of(config).unwritable(config.target)


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
