"""The ports of Iceberg, as one value."""

from typing import cast

from lakeingest.config import Config
from lakeingest.core.copies.ownership import Owner
from lakeingest.errors import NotBuiltYet
from lakeingest.files.file import state_of
from lakeingest.lake.format_package import FormatPackage, Options
from lakeingest.lake.iceberg.commits.finding import IcebergFinding
from lakeingest.lake.iceberg.foreign.adoptions import IcebergAdoptions
from lakeingest.lake.iceberg.foreign.foreign_tables import IcebergForeignTables
from lakeingest.lake.iceberg.logs import IcebergLogs
from lakeingest.lake.iceberg.points import IcebergPoints
from lakeingest.lake.iceberg.rollbacks import IcebergRollbacks
from lakeingest.lake.iceberg.sharded_target import ShardedAdoptions, ShardedTarget
from lakeingest.lake.iceberg.storage.store import unwritable
from lakeingest.lake.iceberg.tables.location import new_place
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.iceberg.versions import IcebergVersions
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.target import OpenSpark, Target


def _target(config: Config, options: Options, ownership: Ownership, open_spark: OpenSpark) -> IcebergTarget:
    kind = ShardedTarget if config.target.is_shared else IcebergTarget
    return kind(
        config.target,
        options,
        keeps_dropped=config.keeps_dropped,
        waiting=state_of(config) / "waiting",
        notes=state_of(config) / "manifests",
        ownership=ownership,
        open_spark=open_spark,
    )


def _adoptions(config: Config, owner: Owner) -> IcebergAdoptions:
    """The adoptions. Their target has no Ownership, which would refuse copies of other pipelines."""
    if config.target.is_shared:
        return ShardedAdoptions(ShardedTarget(config.target), owner)
    return IcebergAdoptions(IcebergTarget(config.target), owner)


def _versions(config: Config) -> IcebergVersions:
    return IcebergVersions(IcebergTarget(config.target))


def _rollbacks(config: Config, ownership: Ownership) -> IcebergRollbacks:
    return IcebergRollbacks(IcebergTarget(config.target, config.tables.of, ownership=ownership))


def _points(config: Config) -> IcebergPoints:
    if config.target.is_shared:
        raise NotBuiltYet(
            "lakeingest points: it is not built yet for a target.table without {database} or {table}: a point would not"
            " show the table that readers query"
        )
    return IcebergPoints(IcebergTarget(config.target))


def _logs(target: Target) -> IcebergLogs:
    return IcebergLogs(cast("IcebergTarget", target))


def _foreign(config: Config, ownership: Ownership) -> IcebergForeignTables:
    target = IcebergTarget(config.target, config.tables.of, ownership=ownership)
    return IcebergForeignTables(target, keeps_dropped=config.keeps_dropped)


def _finding(target: Target) -> IcebergFinding:
    return cast("IcebergTarget", target).finding


ICEBERG = FormatPackage(
    target=_target,
    adoptions=_adoptions,
    versions=_versions,
    rollbacks=_rollbacks,
    points=_points,
    foreign=_foreign,
    logs=_logs,
    unwritable=unwritable,
    new_place=new_place,
    finding=_finding,
)
