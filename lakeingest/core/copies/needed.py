"""Which changes of a table the spool has to keep."""

from collections.abc import Iterable

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress


def needed_by(staged: Progress, visible: Progress | None, reads: Iterable[Place] = ()) -> Place:
    """The place up to which the spool is allowed to forget the table's changes.

    `visible`: the progress that readers see; None if they see none. What this progress needs is kept, because staging
    may be built again on the commit that readers see. `reads`: for each read that runs or is not committed yet, where
    the spool ended before the read took its first low watermark.

    The table also needs the changes of its parents after the place up to which the copy has the changes by foreign
    keys. This place counts, too, because the spool forgets whole segments, with the changes of all tables.
    """
    states = [staged] if visible is None else [staged, visible]
    cascades_to = [progress.cascades.to for progress in states if progress.cascades is not None]
    return min([*(progress.needed_from for progress in states), *cascades_to, *reads])
