"""Whether the spool gets a table's changes from the binlog: a state machine, with its transitions in one table.

    JOINING   -.-- joined --> WATCHED -- DDL --> AT_DDL -- DDL --> AT_DDL
    REJOINING -'                 ^                  |
        |                        '---- passed DDL --'
        '----- refused ----> UNWATCHED <---- lost, from WATCHED and AT_DDL

Every state leads to JOINING if the table is copied again, and to REJOINING if its copy is compared with the source. If
an UNWATCHED table is loaded again with a position before known DDL, it becomes AT_DDL, because the spool has the
changes up to the DDL.
"""

import enum
from collections.abc import Mapping


class Watch(enum.Enum):
    """Whether the changes of a table go from the binlog into the spool."""

    JOINING = "joining"  # an empty copy must be made, or the copy must be emptied; then the table is watched
    REJOINING = "rejoining"  # as JOINING, but the rows of the copy stay if they can be compared with the source
    WATCHED = "watched"
    AT_DDL = "at DDL"  # the binlog has DDL of the table: the changes after it are read once its rows are lifted
    UNWATCHED = "unwatched"  # the table cannot be copied, or the binlog has a change that cannot be replayed


class Turn(enum.Enum):
    """The events that change whether a table is watched."""

    JOINED = "joined"
    REFUSED = "refused"  # the table could not join
    REACHED_DDL = "at DDL"
    PASSED_DDL = "past DDL"  # the rows are lifted, and the spool has the changes up to its end
    LOST = "without changes"  # the binlog has a change that cannot be replayed
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
    """The state of a table when a run begins.

    `copyable`: the table has a definition, and no copy that must be started over first. `compares`: its copy must be
    compared with the source. `new`: it has no copy. `at_ddl`: the spool has DDL to which its rows are not lifted.
    """
    if not copyable:
        return Watch.UNWATCHED
    if compares:
        return Watch.REJOINING
    if new:
        return Watch.JOINING
    return Watch.AT_DDL if at_ddl else Watch.WATCHED


def after(watch: Watch, turn: Turn) -> Watch:
    """The state after an event.

    Raises:
        RuntimeError: the state does not allow the event: a bug of lakeingest.

    """
    following = TRANSITIONS.get((watch, turn))
    if following is None:
        raise RuntimeError(f"a table that is {watch.value} cannot be {turn.value}")
    return following
