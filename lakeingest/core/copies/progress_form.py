"""The JSON form of a table's progress."""

from collections.abc import Mapping
from typing import Any

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Patch, Reread
from lakeingest.core.waves.splits import Splits, key_from_json
from lakeingest.errors import DAMAGED, StateUnreadable

FORMAT = 1  # of the JSON form; a reader refuses a newer format
REREAD_FORMAT = 2  # while a re-snapshot is on staging: versions that know only format 1 would lose its fields
GAP_FORMAT = 3  # while there is a gap: versions that know only formats 1 and 2 would publish the rows
QUARANTINE_FORMAT = 4  # while keys are in quarantine: versions that do not know it would lose the keys
EMPTY_FORMAT = 5  # of a copy that began empty: versions that do not know it would take missing rows for lost ones
COMPANION_FORMAT = 6  # of a companion: versions that do not know companions would take it for a copy


def to_json(progress: Progress) -> dict[str, Any]:
    """A JSON document that `from_json` reads back."""
    doc = {
        "format": _format_of(progress),
        "table": str(progress.table),
        "fingerprint": progress.fingerprint,
        "server_uuid": progress.server_uuid,
        "epoch": progress.epoch,
        "covered_from": str(progress.covered_from),
        "phase": progress.phase.value,
        "wave": progress.wave,
        "rows": progress.rows,
        "nulled": progress.nulled,
        "splits": progress.splits.to_json(),
        "position": None if progress.position is None else progress.position.to_json(),
    }
    optional_fields = {  # the fields that are left out while they are None, empty, 0 or False
        "read_to": progress.read_to and progress.read_to.to_json(),
        "patches": [patch.to_json() for patch in progress.patches],
        "reread_since": progress.reread_since and str(progress.reread_since),
        "reread": progress.reread and progress.reread.to_json(),
        "answered": list(progress.answered),
        "uncounted": progress.uncounted,
        "gap": progress.gap,
        "restarts": progress.restarts,
        "cascades": progress.cascades and progress.cascades.to_json(),
        "quarantine": [list(key) for key in progress.quarantine],
        "began_empty": progress.began_empty,
        "read_after": progress.read_after,
    }
    return doc | {name: value for name, value in optional_fields.items() if value}


def _format_of(progress: Progress) -> int:
    """The oldest format that a version must know so that it loses nothing of the progress.

    A version that knows a format knows all older ones. So the newest format is looked for first.
    """
    if progress.read_after is not None:
        return COMPANION_FORMAT
    if progress.began_empty is not None:
        return EMPTY_FORMAT
    if progress.quarantine:
        return QUARANTINE_FORMAT
    if progress.gap:
        return GAP_FORMAT
    return REREAD_FORMAT if progress.patches or progress.uncounted else FORMAT


def from_json(doc: Mapping[str, Any]) -> Progress:
    """The inverse of `to_json`. Raises StateUnreadable for anything else, and for the form of a newer version."""
    try:
        return Progress(**_parts_of(doc))
    except DAMAGED as error:
        raise StateUnreadable(f"not a table's progress: {error}") from error


def _parts_of(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the progress in a document. Raises StateUnreadable, or an error of DAMAGED, for anything else.

    The fields that `doc.get` reads may be missing.
    """
    if doc["format"] not in range(FORMAT, COMPANION_FORMAT + 1):
        raise StateUnreadable(f"progress of format {doc['format']}, this version reads {COMPANION_FORMAT}")
    return {
        "table": TableId.parse(doc["table"]),
        "fingerprint": str(doc["fingerprint"]),
        "server_uuid": str(doc["server_uuid"]),
        "epoch": int(doc["epoch"]),
        "covered_from": Place.parse(doc["covered_from"]),
        "phase": Phase(doc["phase"]),
        "wave": int(doc["wave"]),
        "rows": int(doc["rows"]),
        "splits": Splits.from_json(doc["splits"]),
        "position": None if doc["position"] is None else Position.from_json(doc["position"]),
        "nulled": int(doc.get("nulled", 0)),
        "read_to": None if doc.get("read_to") is None else Position.from_json(doc["read_to"]),
        "patches": tuple(Patch.from_json(patch) for patch in doc.get("patches", ())),
        "reread_since": None if doc.get("reread_since") is None else Place.parse(doc["reread_since"]),
        "reread": None if doc.get("reread") is None else Reread.from_json(doc["reread"]),
        "answered": tuple(int(number) for number in doc.get("answered", ())),
        "uncounted": doc.get("uncounted", False) is True,
        "gap": doc.get("gap", False) is True,
        "restarts": int(doc.get("restarts", 0)),
        "cascades": None if doc.get("cascades") is None else CascadesRead.from_json(doc["cascades"]),
        "quarantine": tuple(key_from_json(key) for key in doc.get("quarantine", ())),
        "began_empty": None if doc.get("began_empty") is None else str(doc["began_empty"]),
        "read_after": None if doc.get("read_after") is None else str(doc["read_after"]),
    }
