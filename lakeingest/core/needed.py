"""What the spool has to keep of a table's changes."""

from collections.abc import Iterable

from lakeingest.core.position import Place
from lakeingest.core.progress import Progress


def needed_by(staged: Progress, visible: Progress | None, reads: Iterable[Place] = ()) -> Place:
    """The spool may forget the table's changes up to this place, and no others.

    `visible` is the progress that readers see: staging may be branched from it again, and merged from its position.
    `reads` are the places where the spool ended before each read that still runs, or is not committed yet, took its
    first low. The parents' changes, which are in the same segments, are needed from where the copy has those by foreign
    keys.
    """
    known = [staged] if visible is None else [staged, visible]
    settled = [one.cascades.to for one in known if one.cascades is not None]
    return min([*(one.needed_from for one in known), *settled, *reads])
