"""The ports of Hudi, as one FormatPackage."""

from lakeingest import config as configuration
from lakeingest.config import Config
from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File, at, state_of
from lakeingest.lake.format_package import FormatPackage, Options
from lakeingest.lake.hudi.adoptions import HudiAdoptions
from lakeingest.lake.hudi.points import HudiPoints
from lakeingest.lake.hudi.rollbacks import HudiRollbacks
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.versions import HudiVersions
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.target import OpenSpark, Target


def _target(config: Config, options: Options, ownership: Ownership, open_spark: OpenSpark) -> HudiTarget:
    return HudiTarget(
        config.target,
        _staging(config),
        keeps_dropped=config.keeps_dropped,
        ownership=ownership,
        open_spark=open_spark,
        partitions_of=lambda table: options(table).partitions,
    )


def _adoptions(config: Config, owner: Owner) -> HudiAdoptions:
    """The adoptions. Their target has no Ownership, which would refuse copies of other pipelines."""
    return HudiAdoptions(HudiTarget(config.target, _staging(config)), owner)


def _versions(config: Config) -> HudiVersions:
    return HudiVersions(HudiTarget(config.target, _staging(config)))


def _rollbacks(config: Config, ownership: Ownership) -> HudiRollbacks:
    return HudiRollbacks(HudiTarget(config.target, _staging(config), ownership=ownership))


def _points(config: Config) -> HudiPoints:
    return HudiPoints(HudiTarget(config.target, _staging(config)))


def _staging(config: Config) -> File:
    return state_of(config) / "staging"


def _unwritable(settings: configuration.Target) -> str | None:
    """Why the warehouse cannot be written to; None if it can: a file was made there and removed again."""
    try:
        at(settings.warehouse, settings.storage).probe()
    except (LakeIngestError, OSError) as error:
        return f"the warehouse {settings.warehouse} cannot be written: {error}"
    return None


def _new_place(settings: configuration.Target, options: TableOptions, table: TableId) -> None:
    """None, because no other copy can have the folder of a table: the folder has the table's name."""


def _logs(_target: Target) -> None:
    """None: if a bucket gets new rows, a commit writes all its rows anew, so the cost would grow with the log."""


HUDI = FormatPackage(
    target=_target,
    adoptions=_adoptions,
    versions=_versions,
    rollbacks=_rollbacks,
    points=_points,
    foreign=None,
    logs=_logs,
    unwritable=_unwritable,
    new_place=_new_place,
    finding=None,
)
