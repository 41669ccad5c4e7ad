"""What foreign keys changed in the tables of a run, table by table: parents before their children.

A row of a copy shows that a foreign key touched it only until the row is read again. So changes by foreign keys are
kept here, in memory, for the children of the changed table. They are known only after some place: earlier ones are
unknown after a run was killed, after a first copy, or while rows are compared with the source. Unknown changes matter
only if there were any, which the log of the parents tells; then SpoolGap is raised. The changes by foreign keys whose
values cannot be compared here are never known.
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

    `to`: the place up to which the rows, or patches, have the changes by foreign keys. `at`: the place up to which all
    rows have the logged changes; None if rows stand at different places. `gap`: the rows are being compared with the
    source. `version` is a value that changes whenever rows or patches of the copy change.
    """

    to: Place
    at: Place | None
    gap: bool = False
    version: object = None

    @property
    def start(self) -> Place:
        """The place up to which nobody needs to look at changes."""
        return self.to if self.at is None else min(self.to, self.at)


class Copies(Protocol):
    """The copies of a run, and the log up to its end."""

    @property
    def stop(self) -> Place:
        """The end of the log."""

    def columns(self, table: TableId) -> tuple[str, ...]:
        """The columns of the table's key, of its foreign keys, and columns to which foreign keys of children refer.

        Columns that are only in foreign keys that are not comparable are left out.
        """

    def comparable(self, key: ForeignKey) -> bool:
        """Whether `classes` can tell which values of the foreign key may be equal."""

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """The classes of a comparable foreign key's values, as in `core.cascades.Classes`."""

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whether a change of the parent between two places of the log may have an effect by the foreign key.

        It is asked only for foreign keys that are not comparable. Raises SpoolGap as `logged` does.
        """

    def standing(self, table: TableId) -> Standing:
        """How far the table's copy goes. Raises an error if there is no copy that can be continued."""

    def logged(self, table: TableId, after: Place) -> Iterable[RowChange]:
        """The rows that the log deletes or changes after this place. Raises SpoolGap if the log does not have all."""

    def versions(self, table: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """The rows with values of the `sought` classes: in the copy, in its patches, before and after later changes."""


@dataclass(slots=True)
class _Known:
    """All changes of a table after `since`, up to `upto`, found when its copy had this `version`.

    `lacking`: foreign keys that are not comparable may have made changes that the copy lacks.
    """

    since: Place
    upto: Place
    version: object
    changes: set[RowChange]
    moves: set[Move] = field(default_factory=set)
    lacking: bool = False


class Cascaded:
    """The known changes by foreign keys, for the tables of a run."""

    def __init__(self) -> None:
        self._known: dict[TableId, _Known] = {}

    def changes(self, table: TableId, keys: ForeignKeys, copies: Copies) -> set[RowChange]:
        """All changes that foreign keys may have made to the table's rows, from where its copy stands (`start`) on.

        They go up to the end of the log. Raises SpoolGap if some of them cannot be known here.
        """
        current = self._up_to_now(table, keys, copies)
        if current.lacking:
            raise SpoolGap(f"{table}: foreign keys may have changed rows whose values only the source can compare")
        return current.changes

    def _up_to_now(self, table: TableId, keys: ForeignKeys, copies: Copies) -> _Known:
        """The changes of the table up to the end of the log: the kept ones if nothing is new, else extended ones."""
        standing, stop = copies.standing(table), copies.stop
        kept = self._known.get(table)
        if kept is not None and (kept.upto, kept.version) == (stop, standing.version):
            return kept
        current, start = _begun(kept, standing, stop), standing.start
        compared = [key for key in keys[table] if copies.comparable(key)]
        uncompared = [key for key in keys[table] if key not in compared]
        if any(_may_touch(key, start, stop, keys, copies) for key in uncompared):
            current.since, current.lacking = stop, True
        else:
            affected = self._affected(table, start, compared, keys, copies)
            if any(key.parent == table for key in compared):
                _assert_known(current, table, start, keys, copies)
            while sought := affected.sought():
                affected.add_rows(copies.versions(table, sought))
            current.changes |= affected.changes
            current.moves = affected.moves
        self._known[table] = current
        return current

    def _affected(
        self, table: TableId, start: Place, compared: Sequence[ForeignKey], keys: ForeignKeys, copies: Copies
    ) -> Affected:
        """The effects of the parents' changes after `start` by the `compared` foreign keys; no row is looked up yet."""
        affected = Affected(table, copies.columns(table), compared, copies.classes)
        for parent in dict.fromkeys(key.parent for key in compared):
            columns = copies.columns(parent)
            affected.add_changes(parent, columns, copies.logged(parent, start))
            if parent != table and parent in keys:
                unlogged = self._up_to_now(parent, keys, copies)
                _assert_known(unlogged, parent, start, keys, copies)
                affected.add_changes(parent, columns, (change for change in unlogged.changes if change.place > start))
        return affected

    def moves(self, table: TableId) -> set[Move]:
        """The values that foreign keys gave to rows of the table, as the last call of `changes` found them.

        If they are values of the table's key, a row may be in no chunk: each chunk was read while the row had another
        key.
        """
        return self._known[table].moves

    def forget(self, table: TableId, upto: Place) -> None:
        """Forget the table's changes up to this place: neither the table nor one below it needs them."""
        if kept := self._known.get(table):
            kept.changes = {change for change in kept.changes if change.place > upto}


def _begun(kept: _Known | None, standing: Standing, stop: Place) -> _Known:
    """The `kept` changes, to be extended up to `stop`. All changes after `since` will be known then.

    The copy shows only the present versions of its rows. So changes between the last kept ones and the place of the
    copy cannot be found any more.
    """
    changes = set() if kept is None else set(kept.changes)
    if standing.at is None or standing.gap:
        since = stop
    elif kept is None:
        since = standing.to if standing.at <= standing.to else stop
    else:
        since = kept.since if standing.at <= kept.upto else stop
    return _Known(since, stop, standing.version, changes)


def _assert_known(known: _Known, parent: TableId, start: Place, keys: ForeignKeys, copies: Copies) -> None:
    """Raise SpoolGap unless all changes of the parent after `start` are known."""
    if start < known.since and may_be_changed(parent, start, known.since, keys, copies):
        raise SpoolGap(f"{parent}: what foreign keys changed of it after {start} is not known any more")


def may_be_changed(table: TableId, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """Whether foreign keys may have changed rows of the table between two places.

    Raises SpoolGap as `Copies.logged` does.
    """
    return any(_may_touch(key, after, upto, keys, copies) for key in keys[table])


def _may_touch(key: ForeignKey, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """Whether one foreign key may have changed rows of its table between two places.

    Other foreign keys may have changed its parent, and so on upwards.
    """
    if copies.comparable(key):
        columns, changes = copies.columns(key.parent), copies.logged(key.parent, after)
        is_touched = any(key.effect(columns, change) for change in changes if change.place <= upto)
    else:
        is_touched = copies.may_touch(key, after, upto)
    above = key.parent in keys and key.parent != key.table
    return is_touched or (above and may_be_changed(key.parent, after, upto, keys, copies))
