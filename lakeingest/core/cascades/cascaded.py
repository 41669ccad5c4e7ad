"""The changes by foreign keys in the tables of a run, table by table: parents before their children.

Once a row of a copy was read again, the copy no longer shows how a foreign key changed the row. So changes by foreign
keys are kept here, in memory, because each may cause changes in the children of its table. For each table, all changes
after some place are known. Earlier changes are unknown after a run was killed, after a first copy, and while rows are
compared with the source. The changes by a foreign key whose values cannot be compared here are never known. SpoolGap is
raised if the log of the parents shows that there may be unknown changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascades import Affected, ForeignKey, ForeignKeys, Move, Row, RowChange
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import SpoolGap


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the rows of a copy go.

    `to`: the place up to which the rows, or patches, have all changes by foreign keys.
    `at`: the place up to which all rows have the logged changes; None if the splits are at different places.
    `gap`: the rows are being compared with the source.
    `version`: a value that changes whenever rows or patches of the copy change.
    """

    to: Place
    at: Place | None
    gap: bool = False
    version: object = None

    @property
    def start(self) -> Place:
        """The place after which the copy may not have all changes: a search for changes begins here."""
        return self.to if self.at is None else min(self.to, self.at)


class Copies(Protocol):
    """Answers questions about the copies of a run and about the log, which is the spooled changes of their tables."""

    @property
    def stop(self) -> Place:
        """The end of the log."""

    def columns(self, table: TableId) -> tuple[str, ...]:
        """The columns of the table's key and of its foreign keys, and those to which foreign keys of children refer.

        Foreign keys that are not comparable do not count.
        """

    def comparable(self, key: ForeignKey) -> bool:
        """Whether `classes` can tell which values of the foreign key the server may take for equal."""

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """The classes of a comparable foreign key's values, as in `core.cascades.cascades.Classes`."""

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whether a change of the parent after `after`, up to `upto`, may have an effect through the foreign key.

        This is asked only about foreign keys that are not comparable. Raises SpoolGap as `logged` does.
        """

    def standing(self, table: TableId) -> Standing:
        """How far the table's copy goes. Raises an error if there is no copy that can be continued."""

    def logged(self, table: TableId, after: Place) -> Iterable[RowChange]:
        """The logged changes after `after` that delete or update rows. Raises SpoolGap if the log lacks one of them."""

    def versions(self, table: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """The versions of rows with values of the `sought` classes: in the copy, in its patches, and in the log."""


@dataclass(slots=True)
class _Known:
    """All changes of a table by foreign keys after `since`, up to `upto`, found when its copy had this `version`.

    `moves`: the values that the last search found, as `Cascaded.moves` returns them.
    `has_unknown`: foreign keys whose values cannot be compared may have made more changes, which are not known.
    """

    since: Place
    upto: Place
    version: object
    changes: set[RowChange]
    moves: set[Move] = field(default_factory=set)
    has_unknown: bool = False


class Cascaded:
    """The known changes by foreign keys of the tables of a run."""

    def __init__(self) -> None:
        self._known: dict[TableId, _Known] = {}

    def changes(self, table: TableId, keys: ForeignKeys, copies: Copies) -> set[RowChange]:
        """All changes that foreign keys may have made to the table's rows, up to the end of the log.

        These are the changes after the `start` of the copy's `Standing`, and maybe earlier changes. Raises SpoolGap if
        a change after `start` may not be known, and the errors of `Copies.standing`.
        """
        current = self._known_to_end(table, keys, copies)
        if current.has_unknown:
            raise SpoolGap(f"{table}: foreign keys may have changed rows whose values only the source can compare")
        return current.changes

    def _known_to_end(self, table: TableId, keys: ForeignKeys, copies: Copies) -> _Known:
        """The known changes of the table up to the end of the log.

        If neither the log nor the copy has changed since the kept changes were found, the result is the kept changes.
        Otherwise a search extends the kept changes, and the result is kept for the next call. But if a foreign key
        whose values cannot be compared may have changed rows, there is no search, and `has_unknown` of the result is
        True. Raises SpoolGap if changes that may have caused changes of the table are not known.
        """
        standing = copies.standing(table)
        start, stop = standing.start, copies.stop  # the copy may lack changes after `start`; the log ends at `stop`
        kept = self._known.get(table)
        if kept is not None and (kept.upto, kept.version) == (stop, standing.version):
            return kept
        current = _to_extend(kept, standing, stop)
        compared = [key for key in keys[table] if copies.comparable(key)]
        uncompared = [key for key in keys[table] if key not in compared]
        # no search finds the changes by a foreign key whose values cannot be compared
        if any(_may_touch(key, start, stop, keys, copies) for key in uncompared):
            current.has_unknown = True
            current.since = stop  # no change before `stop` counts as known
        else:
            affected = self._affected(table, start, compared, keys, copies)
            refers_to_itself = any(key.parent == table for key in compared)
            if refers_to_itself:  # then a change of the table that is not known may have caused more changes of it
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
        """The effects of the parents' changes after `start` through the `compared` foreign keys.

        No row of the table is looked up yet.
        """
        affected = Affected(table, copies.columns(table), compared, copies.classes)
        for parent in dict.fromkeys(key.parent for key in compared):
            columns = copies.columns(parent)
            affected.add_changes(parent, columns, copies.logged(parent, start))
            if parent != table and parent in keys:  # foreign keys may have changed rows of the parent, too
                unlogged = self._known_to_end(parent, keys, copies)
                _assert_known(unlogged, parent, start, keys, copies)
                affected.add_changes(parent, columns, (change for change in unlogged.changes if change.place > start))
        return affected

    def moves(self, table: TableId) -> set[Move]:
        """The values that foreign keys gave to rows of the table, as the last call of `changes` for it found them.

        If a foreign key has columns of the table's key, a row with such values may be in no chunk: the chunk of the new
        key may have been read before the foreign key changed the row, and the chunk of the old key after that.
        """
        return self._known[table].moves

    def forget(self, table: TableId, upto: Place) -> None:
        """Forget the table's changes up to this place, because neither the table nor a child of it needs them."""
        if kept := self._known.get(table):
            kept.changes = {change for change in kept.changes if change.place > upto}


def _to_extend(kept: _Known | None, standing: Standing, stop: Place) -> _Known:
    """The known changes of a table before a search up to `stop`; the caller adds the changes that the search finds.

    These are the `kept` changes, if there are any. With the added changes, the result has all changes after `since`.
    But the copy in the lake has only current rows. If the copy was merged beyond the place up to which changes are
    known, the changes in between cannot be found any more. Then `since` is `stop`: the kept changes stay, but other
    changes up to `stop` may be missing.
    """
    # without `kept`: the copy has all changes up to `standing.to`, so that no search has to find them
    known = kept or _Known(since=standing.to, upto=standing.to, version=standing.version, changes=set())
    # without `at`, or with a gap, the copy shows no single state of the table
    can_find_all = standing.at is not None and not standing.gap and standing.at <= known.upto
    since = known.since if can_find_all else stop
    return _Known(since=since, upto=stop, version=standing.version, changes=set(known.changes))


def _assert_known(known: _Known, parent: TableId, start: Place, keys: ForeignKeys, copies: Copies) -> None:
    """Raise SpoolGap if foreign keys may have made changes of the parent after `start` that are not in `known`."""
    if start < known.since and may_be_changed(parent, start, known.since, keys, copies):
        raise SpoolGap(f"{parent}: what foreign keys changed of it after {start} is not known any more")


def may_be_changed(table: TableId, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """Whether foreign keys may have changed rows of the table after the place `after`, up to the place `upto`.

    Raises SpoolGap as `Copies.logged` does.
    """
    return any(_may_touch(key, after, upto, keys, copies) for key in keys[table])


def _may_touch(key: ForeignKey, after: Place, upto: Place, keys: ForeignKeys, copies: Copies) -> bool:
    """Whether one foreign key may have changed rows of its table after the place `after`, up to the place `upto`.

    The cause may be a logged change of the parent, or a change of the parent by its own foreign keys.
    """
    if copies.comparable(key):
        columns, changes = copies.columns(key.parent), copies.logged(key.parent, after)
        is_touched = any(key.effect(columns, change) for change in changes if change.place <= upto)
    else:
        is_touched = copies.may_touch(key, after, upto)
    parent_has_keys = key.parent in keys and key.parent != key.table
    return is_touched or (parent_has_keys and may_be_changed(key.parent, after, upto, keys, copies))
