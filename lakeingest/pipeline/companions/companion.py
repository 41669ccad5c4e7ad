"""A kind of companion: what `Companions` asks of it, and what it gets to read."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import Standing
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.changelog.reading import Part
from lakeingest.pipeline.changelog.shown import ShownChangelog
from lakeingest.pipeline.run.table_run import TableRun


@dataclass(slots=True)
class Reading:
    """What a companion has still to read of a changelog, up to the place `shown` as of which readers see the copy.

    `since`: the position up to which the companion goes; None: it begins anew, and the parts begin with a copy.
    `rereads`: readers see all reread rows that are stored, also those as of `shown`. `why`: why it begins anew; '' if
    it does not. `reached`: once all parts are read, the position of a companion that has written them all.
    """

    changelog: ShownChangelog
    since: ReadTo | None
    shown: Place
    rereads: bool
    why: str = ""
    _reached: ReadTo | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The name of the changelog: the `log` of each position in it."""
        return self.changelog.name

    def parts(self) -> Iterator[Part]:
        """All parts, in order. Raises ChangelogGone if some are no longer stored."""
        self._reached = yield from self.changelog.read_shown(self.since, self.shown, rereads=self.rereads)

    @property
    def reached(self) -> ReadTo:
        """The position after all parts."""
        assert self._reached is not None  # noqa: S101 - the caller has read all parts
        return self._reached


class Companion(Protocol):
    """One kind of table beside copies, such as the changelog as a table."""

    @property
    def key(self) -> str:
        """The key of pipeline.yml that asks for companions of this kind. Messages name the kind by it."""

    @property
    def tidies(self) -> bool:
        """Whether `tidy` of this kind ever has something to do. If not, no companion is opened only to be tidied."""

    def is_wanted(self, table: TableRun) -> bool:
        """Whether the table is to have a companion of this kind."""

    def table_of(self, table: TableId) -> TableId:
        """The name of the companion (`core.companions.companion.companion_of`)."""

    def standing(self, table: TableRun) -> Standing | None:
        """How far the companion is, by its last commit; None if there is none. After the call readers see this commit.

        `Companions` calls this before the first `write`, and again after each `write` that failed.

        Raises NotOurTable if someone else's table has the name.
        """

    def write(self, table: TableRun, reading: Reading) -> Standing:
        """Write all parts of the reading, in one commit or in several, and let readers see them.

        Each commit carries the position that it goes up to: that of the last commit is `reading.reached`. If
        `reading.since` is None, the companion is made, or begins anew: no older row counts any more. Returns the
        standing after the last commit.
        """

    def tidy(self, table: TableRun, *, now: bool = False) -> int | None:
        """Do what is due from time to time, such as removing rows that are too old; with `now`, do it in any case.

        `Companions` calls it after each `write`, and with `now` once a day, after `standing` or `write`. Returns the
        companion's version if it made a commit; None if it made none.
        """


class ListOfAll(Protocol):
    """A table about all companions of one kind, which is written after them."""

    @property
    def key(self) -> str:
        """The key of pipeline.yml that asks for the table. Messages name the table by it."""

    @property
    def name(self) -> TableId:
        """The name of the table."""

    def standing(self) -> Standing | None:
        """How far the table is, by its last commit; None if there is none."""

    def write(self, since: ReadTo | None, to: Place, tables: Collection[TableId]) -> Standing:
        """Write what the table lacks after `since`, up to `to`: a place that all companions of `tables` have reached.

        `since` is None if there is no table yet.
        """

    def tidy(self) -> int | None:
        """Do what `Companion.tidy` does with `now`. It is called once a day, after `standing` or `write`."""
