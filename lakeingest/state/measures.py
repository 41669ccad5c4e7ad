"""The last measures of all tables, stored in the state folder by runs with metrics.

measures.json   each measure, and until when the source keeps the binlog. The next run reports these measures
                until it has measured the tables itself
"""

from collections.abc import Sequence
from dataclasses import asdict

from lakeingest.core.figures.freshness import Measure
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "measures.json"


def read_measures(state: File) -> tuple[tuple[Measure, ...], float | None]:
    """What `store_measures` stored: the measures, and `kept_until`. Empty and None if that is missing or damaged."""
    try:
        doc = store.read(state / NAME)
        measures = tuple(Measure(**one | {"table": TableId.parse(one["table"])}) for one in doc["measures"])
        return measures, doc["kept_until"]
    except (OSError, *DAMAGED, StateUnreadable):
        return (), None


def store_measures(state: File, measures: Sequence[Measure], kept_until: float | None) -> None:
    """Store measures in the place of those that are stored. Raises StorageFailed if they cannot be written.

    `kept_until`: the time until which the source keeps the part of its binlog that is not spooled yet (seconds since
    1970).
    """
    documents = [asdict(measure) | {"table": str(measure.table)} for measure in measures]
    store.replace(state / NAME, {"measures": documents, "kept_until": kept_until})
