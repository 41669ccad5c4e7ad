"""At: the version of each copy that has the rows as of a time of the source, or as of a GTID set.

Neither source nor Spark is needed, and nothing is changed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakeingest.commands.past import published_since_start, tables_with_copy
from lakeingest.commands.report import Report
from lakeingest.commands.since import parse_gtids, parse_time
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.binlog.position import GtidSet, Position
from lakeingest.core.figures.freshness import committed_at
from lakeingest.core.figures.shown import iso_time
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UsageError
from lakeingest.lake.formats import open_versions
from lakeingest.lake.versions import Versions
from lakeingest.side_by_side import side_by_side

Moment = datetime | GtidSet


@dataclass(frozen=True, slots=True)
class PastVersion:
    """The last version of a copy that is not later than the moment, and its position in the binlog.

    `version` is None if all versions that can still be read are later. `until` is the commit time of the last
    transaction of the next version (ISO 8601); None if readers see `version` now.
    """

    table: TableId
    target: str
    version: int | None
    position: Position | None
    until: str | None


@dataclass(frozen=True, slots=True, repr=False)
class PastVersions(Report):
    """The versions of several copies as of one moment."""

    tables: tuple[PastVersion, ...]

    headers = ("table", "version", "position", "source time", "next version", "target")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table. The number of a version is a name, not a quantity, so it is shown as a text."""
        for one in self.tables:
            version = None if one.version is None else str(one.version)
            position = None if one.position is None else str(one.position.at)
            yield str(one.table), version, position, iso_time(committed_at(one.position)), one.until, one.target

    @property
    def notes(self) -> Sequence[str]:
        """Which tables have only versions that are later than the moment."""
        return [
            f"{one.table}: every version that can still be read is later; target.history says how long they are kept"
            for one in self.tables
            if one.version is None
        ]


def moment_of(time: str | None, gtid: str | None) -> Moment:
    """The moment that a user writes as a time or as a GTID set.

    Raises UsageError if `time` is no time or `gtid` is no GTID set, if both are given, or if neither is.
    """
    if time is not None and gtid is None:
        return parse_time("--time", time, datetime.now(UTC))
    if gtid is not None and time is None:
        return parse_gtids(gtid)
    raise UsageError("give a moment, by --time or by --gtid")


def versions_at(config: Config, moment: Moment, tables: Sequence[str] = ()) -> PastVersions:
    """The version of each of these tables as of the moment; without `tables`, of all tables that have a copy.

    Raises UsageError if a table has no copy, or if the moment is a GTID set and a copy has no GTIDs.
    """
    versions = open_versions(config)

    def of_table(table: TableId) -> PastVersion:
        return _at(config, versions, table, moment)

    chosen = tables_with_copy(config, tables)
    return PastVersions(tuple(side_by_side(of_table, chosen, config.target.tables_at_once)))


def _at(config: Config, versions: Versions, table: TableId, moment: Moment) -> PastVersion:
    """The version of one table as of the moment.

    Versions are in the order of the binlog. So a binary search finds the version, and parses the progress of only some
    versions.
    """
    published = published_since_start(config, versions, table)
    # the index of the first version that is later: in the order of versions, False comes before True
    later = bisect_right(published, False, key=lambda one: _is_later(one.progress(table).position, moment, table))
    name = table_name(config.target, table)
    if later == 0:
        return PastVersion(table, name, None, None, None)
    found = published[later - 1]
    until = None if later == len(published) else committed_at(published[later].progress(table).position)
    return PastVersion(table, name, found.version, found.progress(table).position, iso_time(until))


def _is_later(position: Position | None, moment: Moment, table: TableId) -> bool:
    """Whether a version at this position has a transaction that is later than the moment.

    A version whose transactions have no known time counts as later.
    """
    if isinstance(moment, datetime):
        committed = committed_at(position)
        return committed is None or committed > moment.timestamp()
    if position is None or position.gtids is None:
        raise UsageError(f"{table} has no GTIDs: use --time")
    return not position.gtids <= moment  # not `>`: each of two sets may have GTIDs that the other lacks
