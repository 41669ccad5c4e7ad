"""What the spool has to keep of a table's changes."""

from collections.abc import Iterable

from lakeingest.core.position import Place
from lakeingest.core.progress import Progress


def needed_by(staged: Progress, visible: Progress | None, reads: Iterable[Place] = ()) -> Place:
    """The spool may forget the table's changes up to this place, and no others.

    `visible` is the progress that readers see: staging may be branched from it again, and merged from its position.
    `reads` are the places where the spool ended before each read that still runs, or is not committed yet, took its
    first low.
    """
    return min([staged.needed_from, *([] if visible is None else [visible.needed_from]), *reads])
