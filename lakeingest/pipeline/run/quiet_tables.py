"""Quiet tables of a pipeline: their positions advance in the state of the pipeline, without a commit.

A position is noted for the commit that readers see, and is valid only while readers see this commit. After a rollback,
a compaction or the restore of an older state, the position that the commit carries is valid again. Noted positions are
durable before the spool forgets changes.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from lakeingest.config import Config
from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.quiet import Quiet
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File, state_of
from lakeingest.lake import formats
from lakeingest.lake.known_copies import Finding, Known, Listings
from lakeingest.lake.target import Looked, OpenSpark, Staged, Target, no_spark
from lakeingest.mysql.source import Source
from lakeingest.state.lease import Lease
from lakeingest.state.quiet import read_quiet, store_quiet


@dataclass(slots=True)
class QuietTables:
    """The positions of quiet tables that the state folder has, and later positions that the run notes."""

    state: File
    _known: dict[TableId, Quiet]
    _retention: int | None = None  # of the source's binlog, in seconds; the source is asked once
    _is_asked: bool = field(default=False, init=False)
    _is_stored: bool = field(default=True, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)  # the source has one connection

    @classmethod
    def of(cls, state: File) -> "QuietTables":
        """The positions in the state folder."""
        return cls(state, read_quiet(state))

    def at_noted_position(self, table: TableId, staged: Staged) -> Staged:
        """The staged state, moved on to the table's noted position; as it is, if no noted position is valid.

        A noted position is valid under two conditions:

        - It was noted for this commit, and readers see this commit.
        - It is later than the commit's position, and both are of one server and epoch.
        """
        quiet, position = self._known.get(table), staged.progress.position
        if quiet is None or position is None:
            return staged
        is_of_visible_commit = staged.visible and quiet.version == staged.version
        is_of_same_epoch = (quiet.position.server_uuid, quiet.position.epoch) == (position.server_uuid, position.epoch)
        if is_of_visible_commit and is_of_same_epoch and quiet.position.place > position.place:
            return replace(staged, progress=staged.progress.unchanged(quiet.position))
        return staged

    def note_unchanged(self, table: TableId, staged: Staged, position: Position) -> Staged:
        """Note that the table has no change between the commit that readers see and the position.

        Returns the staged state at that position. The note is not durable before `keep`.
        """
        noted = self._known.get(table)
        since = noted.since if noted is not None and noted.version == staged.version else int(time.time())
        self._known[table] = Quiet(staged.version, position, since)
        self._is_stored = False
        return replace(staged, progress=staged.progress.unchanged(position))

    def needs_commit(self, table: TableId, staged: Staged, source: Source) -> bool:
        """Whether a quiet table needs a commit now, before the source drops binlog that its last commit needs.

        False if no position is noted for this commit.
        """
        quiet = self._known.get(table)
        if quiet is None or quiet.version != staged.version:  # no position is noted for this commit yet
            return False
        with self._asking:
            if not self._is_asked:
                self._retention, self._is_asked = source.retention_seconds(), True
        return quiet.needs_commit(table, int(time.time()), self._retention)

    def keep(self, lease: Lease) -> None:
        """Make the noted positions durable, if some are new. Then raises LeaseLost if another run took over."""
        if not self._is_stored:
            lease.assert_held()
            store_quiet(self.state, self._known)
            self._is_stored = True


class _TargetWithNotes:
    """A target that finds staged states at their noted positions, and knows copies without a look at them.

    The format's own target is opened when it is needed: the import of a format takes longer than the rest of a command.
    """

    def __init__(self, config: Config, open_spark: OpenSpark, quiet: QuietTables) -> None:
        self.settings, self._quiet = config.target, quiet
        self._config, self._open_spark = config, open_spark
        self._known = formats.known_copies_of(config)
        self._trusted = dict[TableId, Listings]()  # what the format's target is to trust, once it is opened

    @cached_property
    def _target(self) -> Target:
        target = formats.open_target(self._config, self._open_spark)
        trusted, self._trusted = self._trusted, {}
        self._trust(target, trusted)
        return target

    def __getattr__(self, name: str) -> Any:
        """All methods that this class does not define are those of the format's target."""
        return getattr(self._target, name)

    def exists(self) -> bool:
        """As in `Target`. If the catalog has answered for the known copies, the format's target is not needed."""
        has_answered = self._known is not None and self._known.pointers() is not None
        return has_answered or self._target.exists()

    def names(self, *, shown: bool = False) -> Collection[tuple[str, str]]:
        """As in `Target`. They are those of the catalog's answer for the known copies, if there is one."""
        pointers = None if self._known is None else self._known.pointers()
        return self._target.names(shown=shown) if pointers is None else pointers.names

    def unchanged(self, tables: Iterable[TableId], *, whole: bool = False) -> Mapping[TableId, Looked]:
        """As in `Target`, from the notes. With `whole`, the format's target then trusts that the noted files exist."""
        found = {} if self._known is None else self._known.unchanged(tables, whole=whole)
        if whole:
            trusted = {table: known.listings or {} for table, known in found.items()}
            if self._is_open:
                self._trust(self._target, trusted)
            else:
                self._trusted |= trusted
        return {table: self._at_noted_position(table, known.looked) for table, known in found.items()}

    def note(self, tables: Iterable[TableId]) -> None:
        """Store what is known of these copies. Nothing is stored if the format has no notes."""
        if self._known is not None:
            self._known.store(tables, self._find)

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """As in `Target`."""
        types = formats.types_of(self._config, schema)
        return self._target.types(schema) if types is None else types

    @contextmanager
    def storage_errors(self) -> Iterator[None]:
        """As in `Target`. The format's target is needed only for an error that is not ours yet."""
        try:
            yield
        except Exception as error:
            if isinstance(error, LakeIngestError) and not self._is_open:  # perhaps the target cannot be opened
                raise
            with self._target.storage_errors():
                raise

    @property
    def _is_open(self) -> bool:
        """Whether the format's target is opened."""
        return "_target" in self.__dict__

    def _find(self, table: TableId) -> Known | None:
        """A look at the table, as in Finding; None if the format has no Finding."""
        finding = self._finding(self._target)
        return None if finding is None else finding.find(table)

    def _trust(self, target: Target, trusted: Mapping[TableId, Listings]) -> None:
        """Let the format's target trust that these files exist."""
        if trusted and (finding := self._finding(target)) is not None:
            for table, listings in trusted.items():
                finding.trust(table, listings)

    def _finding(self, target: Target) -> Finding | None:
        return formats.finding_of(self._config, target)

    def recover(self, table: TableId) -> Staged | None:
        staged = self._target.recover(table)
        return staged and self._quiet.at_noted_position(table, staged)

    def inspect(self, table: TableId) -> Staged | None:
        looked = self.look(table)  # not the target's, which knows no noted positions
        return None if looked is None else looked.staged

    def look(self, table: TableId) -> Looked | None:
        looked = self._target.look(table)
        return looked and self._at_noted_position(table, looked)

    def _at_noted_position(self, table: TableId, looked: Looked) -> Looked:
        return replace(looked, staged=self._quiet.at_noted_position(table, looked.staged))


def note_copies(target: Target, tables: Iterable[TableId]) -> None:
    """Note what is known of these copies, and of no other, for `unchanged` of targets that are opened later.

    `target`: one of `open_target`.
    """
    cast("_TargetWithNotes", target).note(tables)


def open_target(config: Config, open_spark: OpenSpark = no_spark, quiet: QuietTables | None = None) -> Target:
    """The target of the configured format, which also knows the positions of quiet tables, and copies from notes."""
    positions = quiet or QuietTables.of(state_of(config))
    return cast("Target", _TargetWithNotes(config, open_spark, positions))
