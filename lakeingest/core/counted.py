"""The progress of tables of the lake that no table of the source has: their position counts what was written."""

from lakeingest.core.keys import EVERY_KEY
from lakeingest.core.phases import Phase
from lakeingest.core.position import FIRST_EPOCH, FilePosition, Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
from lakeingest.core.splits import Split, Splits
from lakeingest.core.wave import MergePlan


def begun(schema: TableSchema, kind: str) -> Progress:
    """The progress of a new table, which has no rows. `kind`: what the table is, in the place of a server's name."""
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
    """The progress after one more commit, which has inserted and deleted so many rows. The count grows by `steps`."""
    position = position_at(progress.server_uuid, count_of(progress) + steps)
    plan = MergePlan(progress.splits, (), position.place)
    return progress.merged(plan, position, inserted, deleted)


def count_of(progress: Progress) -> int:
    """The count of what was written into the table."""
    assert progress.position is not None  # noqa: S101 - held by `begun`
    return progress.position.at.pos


def position_at(kind: str, count: int) -> Position:
    """The position of a table of this kind with this count."""
    return Position(kind, FIRST_EPOCH, FilePosition(f"{kind}.000001", count), gtids=None)
