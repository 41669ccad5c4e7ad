"""What a table of the lake takes up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inventory:
    """How many files of rows, files of deletes, and snapshots a table has, and how many bytes its files have.

    `Upkeep.inventory` says which files count.
    """

    files: int
    deletes: int
    bytes: int
    snapshots: int
