"""Whether the spool gets a table's changes from the binlog, as a state machine: one table of what may follow what.

    JOINING   -.-- joined --> WATCHED -- DDL --> AT_DDL -- DDL --> AT_DDL
    REJOINING -'                 ^                  |
        |                        '---- passed DDL --'
        '----- refused ----> UNWATCHED <---- lost, from WATCHED and AT_DDL

Every state leads to JOINING where the table is copied again, and to REJOINING where its copy is compared with the
source. An UNWATCHED table that is loaded again before known DDL is AT_DDL: the changes up to there are in the spool.
"""

import enum
from collections.abc import Mapping


class Watch(enum.Enum):
    """Where a table stands between the binlog and the spool."""

    JOINING = "joining"  # an empty copy is to be made, or the copy is to be emptied; the table is watched from then on
    REJOINING = "rejoining"  # the same for a copy whose rows stay and are compared with the source, where possible
    WATCHED = "watched"
    AT_DDL = "at DDL"  # the binlog holds DDL of the table: the changes after it are read once its rows are lifted
    UNWATCHED = "unwatched"  # the table cannot be copied, or the binlog holds something that cannot be replayed


class Turn(enum.Enum):
    """What happened to a table that is, or is not, watched."""

    JOINED = "joined"
    REFUSED = "refused"  # it could not join
    REACHED_DDL = "at DDL"
    PASSED_DDL = "past DDL"  # the rows are lifted, and the spool has the changes up to its end
    LOST = "without changes"  # a change that cannot be replayed
    COPIED_AGAIN = "copied again"
    COMPARED = "compared"


_JOINING = Watch.JOINING, Watch.REJOINING
_WATCHED = Watch.WATCHED, Watch.AT_DDL

TRANSITIONS: Mapping[tuple[Watch, Turn], Watch] = {
    **{(watch, Turn.JOINED): Watch.WATCHED for watch in _JOINING},
    **{(watch, Turn.REFUSED): Watch.UNWATCHED for watch in _JOINING},
    **{(watch, Turn.REACHED_DDL): Watch.AT_DDL for watch in (*_WATCHED, Watch.UNWATCHED)},
    (Watch.AT_DDL, Turn.PASSED_DDL): Watch.WATCHED,
    **{(watch, Turn.LOST): Watch.UNWATCHED for watch in _WATCHED},
    **{(watch, Turn.COPIED_AGAIN): Watch.JOINING for watch in Watch},
    **{(watch, Turn.COMPARED): Watch.REJOINING for watch in Watch},
}


def first_watch(*, copyable: bool, compares: bool, new: bool, at_ddl: bool) -> Watch:
    """Where a table stands when a run begins.

    `copyable`: it has a definition, and no copy that has to be started over first. `compares`: its copy is to be
    compared. `new`: it has no copy. `at_ddl`: the spool has DDL that its rows lack.
    """
    if not copyable:
        return Watch.UNWATCHED
    if compares:
        return Watch.REJOINING
    if new:
        return Watch.JOINING
    return Watch.AT_DDL if at_ddl else Watch.WATCHED


def after(watch: Watch, turn: Turn) -> Watch:
    """The state that follows.

    Raises:
        RuntimeError: the state does not allow that, which is a mistake in the program.

    """
    following = TRANSITIONS.get((watch, turn))
    if following is None:
        raise RuntimeError(f"a table that is {watch.value} cannot be {turn.value}")
    return following
