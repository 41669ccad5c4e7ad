"""Stores the reports of runs in the state folder: pages for people.

reports/<beginning of the run>.html   what the run did; a run that had nothing to do has `-nothing-new` in the name
"""

from datetime import UTC, datetime

from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "reports"
REPORTS_KEPT = 100
_IDLE = "-nothing-new"


def report_name(began: float, *, idle: bool = False) -> str:
    """The file name of the report of a run that began at this time (seconds since 1970). `idle`: it had no work."""
    moment = datetime.fromtimestamp(began, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return f"{moment}{_IDLE if idle else ''}.html"


def store_report(state: File, name: str, page: str) -> None:
    """Make or replace a report. Of all reports, the last REPORTS_KEPT stay; of runs without work, only the last one.

    Only this user can read them. Raises StorageFailed if the state folder cannot be written.
    """
    folder = state / FOLDER
    store.make_folder(state)
    store.make_folder(folder)
    with store.storage_errors(folder):
        (folder / name).put(page.encode())
        others = [file for file in folder.listed("*.html") if file.name != name]
        idle = [file for file in others if file.stem.endswith(_IDLE)] if name.endswith(f"{_IDLE}.html") else []
        with_work = [file for file in others if file not in idle]
        for file in (*idle, *with_work[: max(0, len(with_work) + 1 - REPORTS_KEPT)]):
            file.delete()
