"""The progress of tables that lakeingest makes itself, such as the ledger and companions.

No table of the source has their rows, so they have no position in a binlog. Their position is a number that grows with
each commit.
"""

from lakeingest.core.binlog.position import FIRST_EPOCH, FilePosition, Position
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.keys import EVERY_KEY
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import MergePlan


def begun(schema: TableSchema, kind: str) -> Progress:
    """The progress of a new table, which has no rows. `kind`: what the table is; it stands for a server's UUID."""
    position = position_at(kind, 0)
    return Progress(
        schema.table,
        schema.fingerprint,
        position.server_uuid,
        position.epoch,
        position.place,
        phase=Phase.LEVEL,
        splits=Splits((Split(EVERY_KEY, merged_at=position.place),)),
        position=position,
    )


def written(progress: Progress, steps: int, inserted: int, deleted: int) -> Progress:
    """The progress after one more commit. `inserted`, `deleted`: its numbers of rows. The position grows by `steps`."""
    position = position_at(progress.server_uuid, count_of(progress) + steps)
    plan = MergePlan(progress.splits, (), position.place)  # (): no marks, because no spool is read
    return progress.merged(plan, position, inserted, deleted)


def count_of(progress: Progress) -> int:
    """The number that is the table's position."""
    assert progress.position is not None  # noqa: S101 - held by `begun`
    return progress.position.at.pos


def position_at(kind: str, count: int) -> Position:
    """The position of a table of this kind with this number."""
    return Position(kind, FIRST_EPOCH, FilePosition(f"{kind}.000001", count), gtids=None)
