"""Stores the report of each gate in the state folder, as a JSON document and as a page for people."""

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from lakeingest.core.file_names import file_name
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StorageFailed
from lakeingest.files.file import File
from lakeingest.quality.gates import GateReport
from lakeingest.quality.page import page

FOLDER = "quality"
REPORTS_PER_TABLE = 50
_MOMENT = "%Y%m%dT%H%M%S.%fZ"
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z", re.ASCII)


def tables_with_reports(state: File, tables: Collection[TableId]) -> set[TableId]:
    """The tables among `tables` with reports of gates in the state folder. This takes one listing for all tables."""
    folders = set((state / FOLDER).subfolders()) if tables else set()
    return {table for table in tables if file_name(str(table)) in folders}


def save_report(state: File, table: TableId, stage: str, rows: int, report: GateReport) -> File:
    """Write the report as a document and a page, and delete the table's oldest reports, so that REPORTS_PER_TABLE stay.

    Returns the file of the page; the file of the document has the same name with `.json`. Raises StorageFailed if the
    state folder cannot be written.
    """
    folder = _folder(state, table)
    now = datetime.now(UTC)
    try:
        folder.make_folder()
        path = folder / f"{_unique_time(folder, now)}-{stage.replace(' ', '-')}.html"
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


def _unique_time(folder: File, now: datetime) -> str:
    """The time with which the report's name begins. It is later than the times in the names of all older reports.

    It is `now` or, if the clock was set back, a microsecond after the time of the newest report.
    """
    newest_first = reversed(folder.listed("*.html"))
    beginnings = (file.name.partition("-")[0] for file in newest_first)
    last = next((text for text in beginnings if _NAME.fullmatch(text)), "")  # a person may have put other files there
    time = now.strftime(_MOMENT)
    if time > last:
        return time
    after_last = datetime.strptime(last, _MOMENT).replace(tzinfo=UTC) + timedelta(microseconds=1)
    return after_last.strftime(_MOMENT)


def _folder(state: File, table: TableId) -> File:
    return state / FOLDER / file_name(str(table))
