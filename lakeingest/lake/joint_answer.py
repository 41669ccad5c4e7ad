"""What a commit of several tables has come to."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """What became of a commit of several tables. `are_seen`: for each table, whether readers are known to see it now.

    `refusal`: why the catalog has not made the commit, although it answers and no table has moved; else ''. `is_final`:
    a repetition would be refused, too, because the catalog has no commits of several tables.
    """

    are_seen: Sequence[bool]
    refusal: str = ""
    is_final: bool = False
