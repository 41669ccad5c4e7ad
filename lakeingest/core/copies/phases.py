"""The phases of a table: a state machine, with its transitions in one table.

    NEW -created-> COPYING -wave-> COPYING -last wave-> COPIED -merge-> LEVEL -gates-> AUDITED -publish-> PUBLISHED

A partial merge keeps the phase COPYING or COPIED. A merge makes a table LEVEL from every phase after COPIED, too.

COPYING: chunks are missing. COPIED: all chunks are read, but splits have different marks or a patch waits. LEVEL: all
splits have one stop, so the staged rows are the source's table as of that stop. Only an AUDITED table can be published.

A patch leads back to COPIED from every later phase. The merge that takes in the patch makes the table LEVEL again, so
the table can be published before the re-snapshot has come to its end. If rows were read again and all are the same, a
COPIED table stays COPIED, and a table in a later phase becomes LEVEL. Only the step RESTART leads back to COPYING: the
copy is started over, and is not published before all rows are read again.

The other steps, by the names of `Step`:

- QUIET: the table has no change up to a later position, and stays in its phase.
- LIFT: the rows have the source's next definition. The table is LEVEL, because the gates have not checked the rows with
  that definition.
- MOVE: the table's position was found on another server. The table is LEVEL, so that the next publish shows the new
  position.
- CARRY: an incomplete copy takes its chunks to another server, and stays in its phase.
- QUARANTINE: rows that failed a gate were removed. The table is LEVEL, because the gates have not checked what is left.
- GAP: the table goes on over a gap. It is LEVEL from any phase except NEW, and is not audited before all of its rows
  were compared with the source.
"""

import enum
from collections.abc import Mapping


class Phase(enum.StrEnum):
    """How far a table's copy has come."""

    NEW = "new"
    COPYING = "copying"
    COPIED = "copied"
    LEVEL = "level"
    AUDITED = "audited"
    PUBLISHED = "published"


class Step(enum.StrEnum):
    """A step of a copy. `TRANSITIONS` has the phase to which the step leads from each phase that allows it."""

    CREATED = "created"
    WAVE = "wave"
    LAST_WAVE = "last wave"
    PARTIAL_MERGE = "partial merge"  # chunks are missing, or a wave was committed after the merge was planned
    MERGE = "merge"
    GATES = "gates"
    PUBLISH = "publish"
    PATCH = "patch"
    SAME = "read again, and the same"
    QUIET = "no change"
    RESTART = "started over"
    LIFT = "lifted"
    MOVE = "moved to another server"
    GAP = "goes on over a gap"
    QUARANTINE = "rows moved to the quarantine"
    CARRY = "chunks carried to another server"


TRANSITIONS: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.NEW, Step.CREATED): Phase.COPYING,
    (Phase.COPYING, Step.WAVE): Phase.COPYING,
    (Phase.COPYING, Step.LAST_WAVE): Phase.COPIED,
    (Phase.COPYING, Step.PARTIAL_MERGE): Phase.COPYING,
    (Phase.COPIED, Step.PARTIAL_MERGE): Phase.COPIED,
    (Phase.COPIED, Step.MERGE): Phase.LEVEL,
    (Phase.LEVEL, Step.MERGE): Phase.LEVEL,
    (Phase.LEVEL, Step.GATES): Phase.AUDITED,
    (Phase.AUDITED, Step.MERGE): Phase.LEVEL,
    (Phase.AUDITED, Step.PUBLISH): Phase.PUBLISHED,
    (Phase.PUBLISHED, Step.MERGE): Phase.LEVEL,
    **{(phase, Step.PATCH): Phase.COPIED for phase in (Phase.COPIED, Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    (Phase.COPIED, Step.SAME): Phase.COPIED,
    **{(phase, Step.SAME): Phase.LEVEL for phase in (Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    **{(phase, Step.QUIET): phase for phase in (Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    **{(phase, Step.LIFT): Phase.LEVEL for phase in (Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    **{(phase, Step.MOVE): Phase.LEVEL for phase in (Phase.COPIED, Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    **{(phase, Step.QUARANTINE): Phase.LEVEL for phase in (Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED)},
    **{(phase, Step.CARRY): phase for phase in (Phase.COPYING, Phase.COPIED)},
    **{(phase, Step.GAP): Phase.LEVEL for phase in Phase if phase is not Phase.NEW},
    **{(phase, Step.RESTART): Phase.COPYING for phase in Phase if phase is not Phase.NEW},
}


class IllegalStep(ValueError):
    """The table's phase does not allow the step; nothing has changed."""
