"""Companions: tables beside a copy that a run writes from the changelog of the copy.

A companion is written after each publish of its copy, up to the published position. Each of its commits carries its
progress with `read_after`, the position in the changelog up to which its rows go (`core.binlog.reading.ReadTo`). So
rows and position are one commit, and a run goes on exactly there. A companion's own position is a count
(`core.copies.counted`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.copies import counted
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema

_NOTHING = "nothing"  # `read_after` of a new companion


_KIND = "companion"
SUFFIXES = ("changelog", "history")  # of all kinds of companions


def all_companions_of(tables: Iterable[TableId]) -> set[TableId]:
    """All companions that these tables may have."""
    return {companion_of(table, suffix) for table in tables for suffix in SUFFIXES}


def companion_of(table: TableId, suffix: str) -> TableId:
    """The companion of a table: in the same database, with this suffix, such as `orders__changelog`."""
    return TableId(table.database, f"{table.name}__{suffix}")


def begun(schema: TableSchema) -> Progress:
    """The progress of a new companion, which has no rows."""
    return replace(counted.begun(schema, _KIND), read_after=_NOTHING)


def written(progress: Progress, read_to: ReadTo, inserted: int, deleted: int = 0, steps: int = 1) -> Progress:
    """The progress after one more commit, which goes up to the position `read_to` in the changelog.

    `inserted`, `deleted`: the numbers of rows. `steps`: by how much the companion's own position, a count, grows. It
    grows by 1 even if `steps` is 0.
    """
    after = counted.written(progress, max(1, steps), inserted, deleted)
    return replace(after, read_after=str(read_to))


def with_columns(progress: Progress, fingerprint: str, read_to: ReadTo | None = None) -> Progress:
    """The progress after a commit that gives the companion other columns, and adds no rows.

    `read_to`: the position after the DDL that does this; None: the companion stays where it is.
    """
    after = progress.lifted(counted.position_at(_KIND, counted.count_of(progress) + 1), fingerprint)
    return after if read_to is None else replace(after, read_after=str(read_to))


def read_to_of(progress: Progress) -> ReadTo | None:
    """The position in the changelog up to which the companion goes; None if it is new, and for the progress of a copy.

    Raises ValueError if the position is damaged.
    """
    if progress.read_after in {None, _NOTHING}:
        return None
    return ReadTo.parse(str(progress.read_after))


def is_companion(progress: Progress) -> bool:
    """Whether this is the progress of a companion, and not that of a copy."""
    return progress.read_after is not None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a companion is, and which version of the copy it was compared with.

    `version`: the companion's own last commit. `read_to`: the position in the changelog. `of`: the version of the copy
    whose rows the companion has in full as of `read_to`; 0 if it is not known.
    """

    version: int
    read_to: ReadTo
    of: int = 0

    def unchanged_to(self, place: Place) -> Self:
        """The same companion as of `place`, up to which its copy has not changed; itself if that is no later place."""
        return replace(self, read_to=ReadTo(place, log=self.read_to.log)) if place > self.read_to.place else self

    def as_noted(self, noted: "Standing | None") -> "Standing":
        """How far the companion is, by its own last commit (this value) and by the last note about it (`noted`).

        A note counts only for the version and the changelog that it names. If files are lost, or if somebody rolls the
        companion back, it is at an older version, which lacks rows: then nobody knows `of`.
        """
        if noted is None or (noted.version, noted.read_to.log) != (self.version, self.read_to.log):
            return self
        return replace(self, read_to=max(self.read_to, noted.read_to, key=lambda one: one.order), of=noted.of)
