"""The marks of our commits: the properties that all formats store, and how progress is read from them.

A commit of ours is *marked*: it carries the complete progress, never a difference to the previous commit.
"""

import json

from lakeingest.core import progress_form
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable

OWNER = "lakeingest.table"  # the source table of a copy
PROGRESS = "lakeingest.progress"
BASE = "lakeingest.base"  # the commit that a commit builds on
POSITION = "lakeingest.position"
BUILDING = "__lakeingest_new"  # the suffix of a table's name until its first publish


def progress_marks(progress: Progress, base: int | None) -> dict[str, str]:
    """The properties of a commit on `base` with this progress. Epoch and position are there for people."""
    position = progress.position
    return {
        PROGRESS: json.dumps(progress_form.to_json(progress), separators=(",", ":")),
        BASE: "" if base is None else str(base),
        "lakeingest.epoch": str(progress.epoch),
        POSITION: "" if position is None else str(position.place),
    }


def parse_progress(table: TableId, commit: str, text: str) -> Progress:
    """The progress that a marked commit carries. Raises StateUnreadable, with the commit's name, when it is damaged."""
    try:
        return progress_form.from_json(json.loads(text))
    except (*DAMAGED, StateUnreadable) as error:
        raise StateUnreadable(f"{table}: the progress of {commit} is unreadable: {error}") from error
