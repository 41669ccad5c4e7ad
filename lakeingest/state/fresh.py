"""Up to which time readers see every change of a table, stored in the state folder (`core.freshness.Fresh`).

fresh.json   for each table, the place and the time of its note; with `metrics`, also the last measures of all tables,
             and until when the source keeps the binlog. A run that ends before it sees the tables repeats them
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from lakeingest.core.freshness import Fresh, Measure
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "fresh.json"


def read_fresh(state: File) -> dict[TableId, Fresh]:
    """The stored notes. Empty if the file is missing or damaged: then only the times in positions are known."""
    try:
        notes = store.read(state / NAME)["tables"]
        return {
            TableId.parse(table): Fresh(Place.parse(place), float(as_of)) for table, (place, as_of) in notes.items()
        }
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def store_fresh(
    state: File, notes: Mapping[TableId, Fresh], measures: Sequence[Measure] = (), kept_until: float | None = None
) -> None:
    """Replace all that is stored. Raises StorageFailed if it cannot be written.

    `kept_until`: the source keeps the binlog after the spool until then (seconds since 1970).
    """
    tables = {str(table): [str(note.place), note.as_of] for table, note in notes.items()}
    last = [asdict(measure) | {"table": str(measure.table)} for measure in measures]
    store.replace(state / NAME, {"tables": tables, "measures": last, "kept_until": kept_until})


def read_measures(state: File) -> tuple[tuple[Measure, ...], float | None]:
    """The last measures of all tables, and `kept_until`. Empty and None if nothing is stored, or if it is damaged."""
    try:
        doc = store.read(state / NAME)
        measures = tuple(Measure(**one | {"table": TableId.parse(one["table"])}) for one in doc.get("measures", ()))
        return measures, doc.get("kept_until")
    except (OSError, *DAMAGED, StateUnreadable):
        return (), None
