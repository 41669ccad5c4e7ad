"""Reports: the result of each gate, stored in the state folder as a document and as a page for people."""

import json
from datetime import UTC, datetime, timedelta

from lakeingest.core.file_names import file_name
from lakeingest.core.schema import TableId
from lakeingest.errors import StorageFailed
from lakeingest.files.file import File
from lakeingest.quality.gates import GateReport
from lakeingest.quality.page import page

REPORTS_PER_TABLE = 50
_MOMENT = "%Y%m%dT%H%M%S.%fZ"


def has_reports(state: File, table: TableId) -> bool:
    """Whether the pipeline of this state folder has run a gate on the table."""
    return bool(_folder(state, table).listed("*.html"))


def save_report(state: File, table: TableId, stage: str, rows: int, report: GateReport) -> File:
    """Write the report, and delete the oldest ones. Returns the report's page; its document is beside it.

    Raises StorageFailed if the state folder cannot be written.
    """
    folder, now = _folder(state, table), datetime.now(UTC)
    try:
        folder.make_folder()
        path = folder / f"{_name(folder, now)}-{stage.replace(' ', '-')}.html"
        path.with_suffix(".json").write(json.dumps(report.document, indent=1).encode())
        path.write(page(table, stage, now, rows, report).encode())
        for old in folder.listed("*.html")[:-REPORTS_PER_TABLE]:
            old.with_suffix(".json").delete()
            old.delete()
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be written: {folder}: {error.strerror}; make room or repair it, then run the same"
            " command again"
        ) from error
    return path


def _name(folder: File, now: datetime) -> str:
    """The begin of a report's name: its time, or just after the last report's time if the clock has gone back."""
    last = next((file.name.partition("-")[0] for file in reversed(folder.listed("*.html"))), "")
    name = now.strftime(_MOMENT)
    if name > last:
        return name
    return (datetime.strptime(last, _MOMENT).replace(tzinfo=UTC) + timedelta(microseconds=1)).strftime(_MOMENT)


def _folder(state: File, table: TableId) -> File:
    return state / "quality" / file_name(str(table))
