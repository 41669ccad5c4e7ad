"""What `status` calls the state of a copy, and what readers see of it."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from lakeingest.config import Config
from lakeingest.core.figures.freshness import Fresh, age, fresh_as_of
from lakeingest.core.figures.shown import Shown, iso_time
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.target import Staged


def state_of_copy(staged: Staged, shown: Shown | None) -> str:
    """The state of a copy, as a word or two. `shown` is the result of `shown_state`."""
    progress = staged.progress
    if staged.visible:
        return "published"
    if progress.gap:  # changes are lost, so all rows are read again and compared
        return "comparing"
    if staged.published is not None and not progress.splits.complete:  # readers see the rows from before the restart
        return "copying again"
    # otherwise readers see an earlier commit than the staged one
    return progress.phase.value if shown is None else "published"


def shown_state(staged: Staged, recorded: Shown | None) -> Shown | None:
    """The state that readers see; None if nothing is published. `recorded` is the state that the last publish stored.

    If readers see the newest commit, the position is that of the newest progress, not that of the last publish: the
    position of a quiet table moves forward without a publish.
    """
    if staged.visible:
        progress = staged.progress
        return Shown(progress.position, progress.rows, None if recorded is None else recorded.published_at)
    return None if staged.published is None else recorded


def freshness_of(
    config: Config, table: TableId, shown: Shown | None, lag_bytes: int | None, note: Fresh | None
) -> dict[str, Any]:
    """The fields of a status about the freshness of a table. `note`: what the last run noted; None without a note."""
    now, staleness = time.time(), config.tables.of(table).max_staleness
    position = None if shown is None else shown.position
    # now, if the binlog has nothing after what readers see; else the time of the note or the last transaction
    as_of = now if position is not None and lag_bytes == 0 else fresh_as_of(position, note)
    return {
        "fresh_as_of": iso_time(as_of),
        "freshness_seconds": age(as_of, now),
        "max_staleness_seconds": None if staleness is None else staleness.total_seconds(),
    }


def notes_of_start(table: TableId, began_empty: str | None, *, copied_once: bool) -> Iterator[str]:
    """Notes about a copy that does not follow its table from its first row on, because `tables.startup` says so."""
    if began_empty is not None:
        yield f"{table}: began empty at {began_empty}; `lakeingest resnapshot {table}` copies all its rows"
    if copied_once:
        yield f"{table}: copied once, as tables.startup says; `lakeingest resnapshot {table}` copies it again"


def notes_of_unread(unread: Mapping[str, int]) -> Iterator[str]:
    """A note about what the second decoder cannot check. `unread`: by reason, how often the decoder met this."""
    if unread:
        reasons = ", ".join(f"{reason} ({count:,} times)" for reason, count in sorted(unread.items()))
        yield (
            f"the second decoder, which checks a part of what is read, cannot check: {reasons}; nothing is known to be"
            " wrong, and `lakeingest verify` compares all rows with the source"
        )
