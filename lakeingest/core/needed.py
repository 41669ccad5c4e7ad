"""Which changes of a table the spool has to keep."""

from collections.abc import Iterable

from lakeingest.core.position import Place
from lakeingest.core.progress import Progress


def needed_by(staged: Progress, visible: Progress | None, reads: Iterable[Place] = ()) -> Place:
    """The spool may forget the table's changes up to this place, and no others.

    `visible` is the progress that readers see: staging may be branched from it again, and merged from its position.
    `reads` has a place for each read that still runs, or is not committed yet: the end of the spool before the read
    took its first low. The parents' changes are in the same segments; they are needed after the place up to which the
    copy has the changes by foreign keys.
    """
    states = [staged] if visible is None else [staged, visible]
    cascades_to = [progress.cascades.to for progress in states if progress.cascades is not None]
    return min([*(progress.needed_from for progress in states), *cascades_to, *reads])
