"""Points: list, show, make and drop the places as of which one version of each copy is kept (`core.copies.points`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.commands.report import Report
from lakeingest.commands.signal import Reporter, SignalResults, ask
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.copies.points import Point, checked_name
from lakeingest.core.copies.signals import Action
from lakeingest.core.figures.freshness import committed_at
from lakeingest.core.figures.shown import iso_time
from lakeingest.errors import UsageError
from lakeingest.files.file import state_of
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.state.points import read_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeptPoints(Report, tuple[Point, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The points of a pipeline, the oldest first."""

    headers = ("point", "position", "source time", "made", "tables", "left out")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each point."""
        for point in self:
            times = iso_time(committed_at(point.position)), iso_time(point.made_at.timestamp())
            yield point.name, str(point.position.at), *times, len(point.tables), len(point.left_out)


@dataclass(frozen=True, slots=True, repr=False)
class ShownPoint(Report):
    """The tables of a point. `names` are those of the copies in the lake, in the order of the point's tables."""

    point: Point
    names: tuple[str, ...]

    headers = ("table", "in the lake", "version", "read as")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table. The number of a version is a name, not a quantity, so it is shown as a text."""
        for (table, kept), name in zip(self.point.tables.items(), self.names, strict=True):
            yield str(table), name, str(kept.version), kept.read_as

    @property
    def notes(self) -> Sequence[str]:
        """Where the point is, and the tables that it lacks."""
        position, source_time = self.point.position, iso_time(committed_at(self.point.position))
        gtids = f", with the GTIDs {position.gtids}" if position.gtids else ""
        where = f"{self.point.name}: all tables as of {position.at}, source time {source_time or 'unknown'}{gtids}"
        return [where, *(f"{table} is left out: {reason}" for table, reason in self.point.left_out.items())]


def points(config: Config) -> KeptPoints:
    """The points that readers can use."""
    return KeptPoints(point for point in read_points(state_of(config)) if point.is_complete)


def shown_point(config: Config, name: str) -> ShownPoint:
    """One point. Raises UsageError if there is none of this name."""
    for point in points(config):
        if point.name == name:
            return ShownPoint(point, tuple(table_name(config.target, table) for table in point.tables))
    raise UsageError(f"there is no point {name}; `lakeingest points list` shows all")


def create_point(
    config: Config,
    name: str,
    *,
    wait: bool = True,
    report: Reporter = lambda _: None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
) -> SignalResults:
    """Make a point, by the run that is at work, or else by a run of this process, which first catches up.

    Raises UsageError for a name that no point can have.
    """
    return ask(config, Action.POINT, name=checked_name(name), wait=wait, report=report, observe=observe, spark=spark)


def drop_point(config: Config, name: str, *, wait: bool = True, report: Reporter = lambda _: None) -> SignalResults:
    """Let the owner of the lease drop a point; if nobody holds the lease, this process drops it.

    Raises UsageError if there is no point of this name.
    """
    if not any(point.name == name for point in read_points(state_of(config))):
        raise UsageError(f"there is no point {name}; `lakeingest points list` shows all")
    return ask(config, Action.DROP_POINT, name=name, wait=wait, report=report)
