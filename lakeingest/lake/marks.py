"""The marks of our commits: properties with the progress, which all formats store and read in the same way.

A commit of ours is *marked*: it carries the complete progress, never a difference to the previous commit.
"""

import json

from lakeingest.core.copies import progress_form
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable

OWNER = "lakeingest.table"  # the source table of a copy
PROGRESS = "lakeingest.progress"
BASE = "lakeingest.base"  # on which commit this one builds
POSITION = "lakeingest.position"
BUILDING = "__lakeingest_new"  # the suffix of a table's name until its first publish


def progress_marks(progress: Progress, base: int | None) -> dict[str, str]:
    """The properties of a commit with this progress. `base` is the commit that it builds on; None: it builds on none.

    The properties for the epoch and the position repeat the progress in a form for people.
    """
    position = progress.position
    return {
        PROGRESS: json.dumps(progress_form.to_json(progress), separators=(",", ":")),
        BASE: "" if base is None else str(base),
        "lakeingest.epoch": str(progress.epoch),
        POSITION: "" if position is None else str(position.place),
    }


def parse_progress(table: TableId, commit: str, text: str) -> Progress:
    """The progress in the text that a marked commit carries. Raises StateUnreadable if the text is damaged.

    `commit` names the commit in the message.
    """
    try:
        return progress_form.from_json(json.loads(text))
    except (*DAMAGED, StateUnreadable) as error:
        raise StateUnreadable(f"{table}: the progress of {commit} is unreadable: {error}") from error
