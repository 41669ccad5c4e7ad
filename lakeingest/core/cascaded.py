"""What foreign keys changed in the tables of a run, table by table: each of them after its parents.

A row of a copy tells that it was touched only until it is read again. What a table needs of a parent that is itself
changed by foreign keys is therefore kept here, in memory. It is known after a place that is kept, too: a run that was
killed, a first copy or rows that are being compared leave what is before it unknown. That matters only where something
was changed then, which the log of the tables above tells; SpoolGap in this case. So it is with foreign keys whose
values cannot be compared here: what they change is never known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.core.cascades import Affected, ForeignKey, ForeignKeys, Move, Row, RowChange
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import SpoolGap


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the rows of a copy go.

    `to`: up to there they have the changes by foreign keys, or patches have. `at`: up to there they have the logged
    changes, and all rows are of one place; None where they are not. `gap`: they are being compared with the source.
    `version` is another value whenever rows or patches of the copy are others.
    """

    to: Place
    at: Place | None
    gap: bool = False
    version: object = None

    @property
    def start(self) -> Place:
        """What happened up to there, nobody needs to look at."""
        return self.to if self.at is None else min(self.to, self.at)


class Copies(Protocol):
    """The copies of a run, and the log up to its end."""

    @property
    def stop(self) -> Place:
        """The end of the log."""

    def columns(self, table: TableId) -> tuple[str, ...]:
        """The columns of the table that its key, its foreign keys and those of the tables below it need.

        Those of foreign keys that are not comparable are not needed.
        """

    def comparable(self, key: ForeignKey) -> bool:
        """Whether `classes` can tell which values of the foreign key may be equal."""

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """The classes of a comparable foreign key's values, as in `core.cascades.Classes`."""

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whether a change of the parent in the log between two places may have an effect by the foreign key.

        It is asked of those that are not comparable; SpoolGap as for `logged`.
        """

    def standing(self, table: TableId) -> Standing:
        """How far the table's copy goes; an error where there is none to be continued."""

    def logged(self, table: TableId, after: Place) -> Iterable[RowChange]:
        """The rows that the log takes away, or makes others, after this place; SpoolGap where it does not have all."""

    def versions(self, table: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """The rows with values of these classes: in the copy, in its patches, before and after later changes."""


@dataclass(slots=True)
class _Known:
    """All changes after `since`, up to `upto`, which were looked for with the copy of this version.

    `lacking`: foreign keys that are not comparable may have made changes that the copy lacks.
    """

    since: Place
    upto: Place
    version: object
    changes: set[RowChange]
    moves: set[Move] = field(default_factory=set)
    lacking: bool = False


class Cascaded:
    """What is known of the tables of a run."""

    def __init__(self) -> None:
        self._known: dict[TableId, _Known] = {}

    def changes(self, table: TableId, keys: ForeignKeys, copies: Copies) -> set[RowChange]:
        """All changes that foreign keys may have made to the table's rows since `start`, up to the end of the log."""
        known = self._up_to_now(table, keys, copies)
        if known.lacking:
            raise SpoolGap(f"{table}: foreign keys may have changed rows whose values only the source can compare")
        return known.changes

    def _up_to_now(self, table: TableId, keys: ForeignKeys, copies: Copies) -> _Known:
        standing, stop = copies.standing(table), copies.stop
        before = self._known.get(table)
        if before is not None and (before.upto, before.version) == (stop, standing.version):
            return before
        known, start = _begun(before, standing, stop), standing.start
        compared = [key for key in keys[table] if copies.comparable(key)]
        others = [key for key in keys[table] if key not in compared]
        if any(_may_touch(key, start, stop, keys, copies) for key in others):
            known.since, known.lacking = stop, True
        else:
            affected = self._affected(table, start, compared, keys, copies)
            if any(key.parent == table for key in compared):
                _assert_known(known, table, start, keys, copies)
            while sought := affected.sought():
                affected.add_rows(copies.versions(table, sought))
            known.changes |= affected.changes
            known.moves = affected.moves
        self._known[table] = known
        return known

    def _affected(
        self, table: TableId, start: Place, compared: Sequence[ForeignKey], keys: ForeignKeys, copies: Copies
    ) -> Affected:
        """What changes of the parents after `start` do by these foreign keys; no row is looked for yet."""
        affected = Affected(table, copies.columns(table), compared, copies.classes)
        for parent in dict.fromkeys(key.parent for key in compared):
            columns = copies.columns(parent)
            affected.add_changes(parent, columns, copies.logged(parent, start))
            if parent != table and parent in keys:
                known = self._up_to_now(parent, keys, copies)
                _assert_known(known, parent, start, keys, copies)
                affected.add_changes(parent, columns, (change for change in known.changes if change.place > start))
        return affected

    def moves(self, table: TableId) -> set[Move]:
        """The values that these changes gave to rows of the table, as `changes` found them last.

        Where they are values of its key, a row may have been in no chunk: each was read when the row had another key.
        """
        return self._known[table].moves

    def forget(self, table: TableId, upto: Place) -> None:
        """Neither the table nor one below it needs a change of it up to this place."""
        if known := self._known.get(table):
            known.changes = {change for change in known.changes if change.place > upto}


def _begun(known: _Known | None, standing: Standing, stop: Place) -> _Known:
    """The known changes that can be extended. A row only shows the versions that it once had."""
    changes = set() if known is None else set(known.changes)
    if standing.at is None or standing.gap:
        since = stop
    elif known is None:
        since = standing.to if standing.at <= standing.to else stop
    else:
        since = known.since if standing.at <= known.upto else stop
    return _Known(since, stop, standing.version, changes)


def _assert_known(known: _Known, parent: TableId, start: Place, keys: ForeignKeys, copies: Copies) -> None:
    """SpoolGap unless all changes of the parent after `start` are known."""
    if start < known.since and may_be_changed(parent, start, known.since, keys, copies):
        raise SpoolGap(f"{parent}: what foreign keys changed of it after {start} is not known any more")


def may_be_changed(table: TableId, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """Whether foreign keys may have changed rows of the table between two places; SpoolGap as for `Copies.logged`."""
    return any(_may_touch(key, after, upto, keys, copies) for key in keys[table])


def _may_touch(key: ForeignKey, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """The same by one foreign key, whose parent foreign keys may have changed, too."""
    if copies.comparable(key):
        columns, changes = copies.columns(key.parent), copies.logged(key.parent, after)
        is_touched = any(key.effect(columns, change) for change in changes if change.place <= upto)
    else:
        is_touched = copies.may_touch(key, after, upto)
    above = key.parent in keys and key.parent != key.table
    return is_touched or (above and may_be_changed(key.parent, after, upto, keys, copies))
