"""The positions of quiet tables, stored in the state folder (`core.copies.quiet.Quiet`).

quiet.json   for each position, the tables that are quiet up to it, each with `version` and `since` of its `Quiet`

One file has all tables, so that one write moves the positions of all tables.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.quiet import Quiet
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "quiet.json"


def read_quiet(state: File) -> dict[TableId, Quiet]:
    """The stored position of each quiet table.

    Empty if the file is missing or damaged: then a table is known only as of the position of its commit.
    """
    try:
        groups = store.read(state / NAME)["positions"]
        return dict(pair for group in groups for pair in _tables_of_group(group))
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def store_quiet(state: File, tables: Mapping[TableId, Quiet]) -> None:
    """Replace all stored positions. Raises StorageFailed if they cannot be written."""
    groups: defaultdict[Position, dict[str, list[int]]] = defaultdict(dict)  # by position; many tables share one
    for table, quiet in tables.items():
        groups[quiet.position][str(table)] = [quiet.version, quiet.since]
    positions = [{"position": position.to_json(), "tables": group} for position, group in groups.items()]
    store.replace(state / NAME, {"positions": positions})


def _tables_of_group(group: Mapping[str, Any]) -> list[tuple[TableId, Quiet]]:
    """The tables that are quiet up to the position of the group, each with its note."""
    position = Position.from_json(group["position"])
    return [
        (TableId.parse(table), Quiet(int(version), position, int(since)))
        for table, (version, since) in group["tables"].items()
    ]
