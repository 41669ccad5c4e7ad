"""The changes of a commit that tidies a copy: all of it, because a person asks, or what its commits have paid for."""

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table

from lakeingest.core.copies.wear import Group
from lakeingest.lake.iceberg.files.row_delta import FileChanges
from lakeingest.lake.iceberg.merges.compaction import SMALL_ROWS
from lakeingest.lake.iceberg.merges.vector_compaction import full_compaction
from lakeingest.lake.iceberg.tables.staged_schema import as_staged
from lakeingest.lake.iceberg.tables.wear import paid_after, wear_of


def needs_look(loaded: Table, version: int) -> bool:
    """Whether it is time to look at all files of this snapshot, because the table may be worn."""
    return wear_of(loaded.metadata, version).needs_look(SMALL_ROWS)


def tidied(loaded: Table, version: int, *, unasked: bool) -> tuple[FileChanges, Mapping[str, str]]:
    """The file changes that tidy a snapshot, and the properties of their commit, which spends the credit of the table.

    `unasked`: only the files that the credit suffices for are written anew.
    """
    staged, wear = as_staged(loaded, version), wear_of(loaded.metadata, version)
    if not unasked:
        return full_compaction(staged, version), paid_after(loaded.metadata, version, 0)
    written: list[Group] = []

    def choose(groups: Sequence[Group]) -> Sequence[int]:
        numbers = wear.chosen(groups)
        written.extend(groups[number] for number in numbers)
        return numbers

    changes = full_compaction(staged, version, choose)
    return changes, paid_after(loaded.metadata, version, wear.left_after(written))
