"""Quiet tables: for each one, the latest position at which the version that readers see equals the source's table.

quiet.json   the positions, each with its tables: the version that readers see, and the second since when that is known

One file has all tables, so that one write moves all of them.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from lakeingest.core.position import Position
from lakeingest.core.quiet import Quiet
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "quiet.json"


def read_quiet(state: File) -> dict[TableId, Quiet]:
    """The stored position of each table.

    Empty where the file is lost or damaged: then only the commits have positions.
    """
    try:
        return dict(pair for group in store.read(state / NAME)["positions"] for pair in _tables(group))
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def store_quiet(state: File, tables: Mapping[TableId, Quiet]) -> None:
    """Replace all stored positions. Raises StorageFailed when they cannot be written."""
    groups: defaultdict[Position, dict[str, list[int]]] = defaultdict(dict)
    for table, quiet in tables.items():
        groups[quiet.position][str(table)] = [quiet.version, quiet.since]
    positions = [{"position": at.to_json(), "tables": versions} for at, versions in groups.items()]
    store.replace(state / NAME, {"positions": positions})


def _tables(group: Mapping[str, Any]) -> list[tuple[TableId, Quiet]]:
    position = Position.from_json(group["position"])
    return [
        (TableId.parse(table), Quiet(int(version), position, int(since)))
        for table, (version, since) in group["tables"].items()
    ]
