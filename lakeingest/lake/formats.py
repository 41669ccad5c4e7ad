"""Opens the lake in the configured format. `config.formats` has all other facts about a format."""

import functools
import hashlib
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress

from lakeingest.config import Config
from lakeingest.config.companions import companion_options, plain_options
from lakeingest.config.formats import FORMATS
from lakeingest.config.target import FormatName
from lakeingest.core.file_names import file_name
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.files.local import Local
from lakeingest.lake.foreign_tables import ForeignTables
from lakeingest.lake.format_package import FormatPackage
from lakeingest.lake.iceberg.catalogs.pointers import read_pointers
from lakeingest.lake.iceberg.files.type_names import type_names
from lakeingest.lake.identity import address_of, owner_here
from lakeingest.lake.known_copies import NAME, Finding, KnownCopies
from lakeingest.lake.logs import Logs
from lakeingest.lake.ownership import Adoptions, Ownership
from lakeingest.lake.points import Points
from lakeingest.lake.rollbacks import Rollbacks
from lakeingest.lake.target import OpenSpark, Target, no_spark
from lakeingest.lake.versions import Versions
from lakeingest.version import VERSION


def _iceberg() -> FormatPackage:
    from lakeingest.lake.iceberg.package import ICEBERG

    return ICEBERG


def _hudi() -> FormatPackage:
    from lakeingest.lake.hudi.package import HUDI

    return HUDI


# functions, because each package takes long to import
_PACKAGES: Mapping[FormatName, Callable[[], FormatPackage]] = {"iceberg": _iceberg, "hudi": _hudi}


def package_of(config: Config) -> FormatPackage:
    """The package of the configured format."""
    return _PACKAGES[config.target.format]()


def import_ahead(config: Config) -> None:
    """Import the modules of the configured format, in a thread. Whoever needs them first waits for that import.

    An import that fails is tried again by whoever needs the modules, who then gets the error.
    """
    with suppress(ImportError):
        package_of(config)


def open_target(config: Config, open_spark: OpenSpark = no_spark) -> Target:
    """The target of the configured format. Callers that neither read rows nor publish need no Spark."""
    return package_of(config).target(config, config.tables.of, ownership_of(config), open_spark)


def finding_of(config: Config, target: Target) -> Finding | None:
    """The Finding of a target of `open_target`; None if the format has none."""
    finding = package_of(config).finding
    return None if finding is None else finding(target)


def types_of(config: Config, schema: TableSchema) -> tuple[str, ...] | None:
    """What `Target.types` returns or raises; None if only the format's package knows it, which takes long to import."""
    is_known = config.target.format == "iceberg" and not config.target.is_shared
    return type_names(config.target, schema) if is_known else None


def known_copies_of(config: Config) -> KnownCopies | None:
    """The copies that the state folder knows; None if the format has no catalog that answers for all tables at once.

    None, too, for shards: a look at a shard also looks at the table that readers query, and this table has no notes.
    """
    if config.target.format != "iceberg" or config.target.is_shared:
        return None
    # everything on which a look depends; the texts of the settings have no secrets
    parts = VERSION, config.name, address_of(config), repr(config.target), repr(config.tables)
    condition = hashlib.sha256(repr(parts).encode()).hexdigest()
    pointers, name_of = functools.partial(read_pointers, config.target), config.target.identifier
    return KnownCopies(state_of(config), condition, pointers, name_of, ownership_of(config))


def has_notes(config: Config) -> bool:
    """Whether a state folder of this machine has notes of copies, which may have become void. False if unknown.

    A store is not asked: its client has threads, and this process may be about to fork.
    """
    with suppress(OSError, LakeIngestError):
        state = state_of(config)
        return config.target.catalog.is_embedded and isinstance(state, Local) and (state / NAME).exists()
    return False


def open_companions(config: Config, open_spark: OpenSpark = no_spark) -> Target:
    """The target for companions of copies (`core.companions.companion`).

    Their options are fixed: pipeline.yml has none for them.
    """
    # a format by folder is Hudi, whose companions have no partitions
    options = plain_options if FORMATS[config.target.format].by_folder else companion_options
    return package_of(config).target(config, options, ownership_of(config), open_spark)


def logs_of(config: Config, target: Target) -> Logs | None:
    """The Logs of a target of `open_companions`; None if the format has none."""
    return package_of(config).logs(target)


def ownership_of(config: Config) -> Ownership:
    """The Ownership of the pipeline with this state folder. The folder knows the tables whose definitions it has."""
    definitions = state_of(config) / "definitions"
    return Ownership(lambda: owner_here(config), lambda table: (definitions / f"{file_name(str(table))}.json").exists())


def open_adoptions(config: Config) -> Adoptions:
    """The Adoptions of the configured format. They make the pipeline of this state folder the owner of copies."""
    return package_of(config).adoptions(config, owner_here(config))


def open_versions(config: Config) -> Versions:
    """The Versions of the configured format, for readers of the changelog."""
    return package_of(config).versions(config)


def open_rollbacks(config: Config) -> Rollbacks:
    """The Rollbacks of the configured format."""
    return package_of(config).rollbacks(config, ownership_of(config))


def open_points(config: Config) -> Points:
    """The Points of the configured format. Raises NotBuiltYet for shards."""
    return package_of(config).points(config)


def open_foreign_tables(config: Config) -> ForeignTables | None:
    """The ForeignTables of the configured format; None if pipeline.yml takes over no table of other tools."""
    foreign = package_of(config).foreign if config.tables.adopts else None
    return None if foreign is None else foreign(config, ownership_of(config))


def unwritable(config: Config) -> str | None:
    """The reason why the warehouse, in an object store, cannot be written to; None if it can be written to."""
    return package_of(config).unwritable(config.target)


def missing_rights(config: Config) -> tuple[str, ...] | None:
    """The rights in Lake Formation that a run needs and does not have, each with its fix.

    None if the catalog is not Glue, or Lake Formation cannot be asked.
    """
    if config.target.catalog.type != "glue":
        return None
    from lakeingest.lake.iceberg.catalogs import lake_formation

    try:
        return lake_formation.missing_rights(config.target)
    except LakeIngestError:
        return None


def import_writers() -> None:
    """Import the modules that executors write with, so that their first task does not wait for the import.

    Iceberg's modules take longest.
    """
    importlib.import_module("lakeingest.lake.iceberg.target")
