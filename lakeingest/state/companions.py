"""How far companions are (`core.companions.companion.Standing`), as far as their own commits do not tell.

companions.json   by the key of pipeline.yml and by table: the companion's version, the copy's version, the position;
                  the day (UTC) on which all companions were tidied

An entry is valid only while the companion has the version that the entry names. At another version, the companion's own
last commit says how far the companion is.
"""

from collections.abc import Mapping
from datetime import date

from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import Standing
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "companions.json"
Standings = Mapping[tuple[str, TableId], Standing]


def read_companions(state: File) -> dict[tuple[str, TableId], Standing]:
    """The stored standings; none if the file is missing or damaged: then the commits of companions count."""
    try:
        return {
            (str(key), TableId.parse(table)): Standing(int(version), ReadTo.parse(read_to), int(of))
            for key, tables in store.read(state / NAME)["companions"].items()
            for table, (version, of, read_to) in tables.items()
        }
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def read_tidied(state: File) -> date | None:
    """The day (UTC) on which all companions were tidied; None if that is not known: then they are tidied again."""
    try:
        return date.fromisoformat(store.read(state / NAME)["tidied"])
    except (OSError, *DAMAGED, StateUnreadable):
        return None


def store_companions(state: File, standings: Standings, tidied: date | None = None) -> None:
    """Store the standings and the day in the place of all that is stored. Raises StorageFailed if that fails."""
    companions: dict[str, dict[str, list[object]]] = {}
    for (key, table), standing in standings.items():
        entry: list[object] = [standing.version, standing.of, str(standing.read_to)]
        companions.setdefault(key, {})[str(table)] = entry
    store.replace(state / NAME, {"companions": companions, "tidied": None if tidied is None else tidied.isoformat()})
