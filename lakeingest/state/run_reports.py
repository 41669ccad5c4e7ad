"""Stores the reports of runs in the state folder: pages for people.

reports/<beginning of the run>.html   what the run did; a run that had nothing to do has `-nothing-new` in the name, one
                                      that failed with an error which the next run tries to get over has `-to-retry`
"""

from datetime import UTC, datetime
from typing import Literal

from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "reports"
Kind = Literal["", "nothing-new", "to-retry"]
# How many reports of each kind stay, so that a night of retries does not remove the reports of runs with work
KEPT: dict[Kind, int] = {"": 100, "nothing-new": 1, "to-retry": 10}


def report_name(began: float, kind: Kind = "") -> str:
    """The file name of the report of a run that began at this time (seconds since 1970)."""
    moment = datetime.fromtimestamp(began, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return f"{moment}{_ending(kind)}"


def store_report(state: File, name: str, page: str) -> None:
    """Make or replace a report. Of the reports of its kind, the last ones stay, as many as KEPT says.

    Only this user can read them. Raises StorageFailed if the state folder cannot be written.
    """
    folder = state / FOLDER
    store.make_folder(state)
    store.make_folder(folder)
    kind = _kind(name)
    with store.storage_errors(folder):
        (folder / name).put(page.encode())
        others = [file for file in folder.listed("*.html") if file.name != name and _kind(file.name) == kind]
        # the names begin with the time, so the first files are the oldest; + 1: the new report stays, too
        for file in others[: max(0, len(others) + 1 - KEPT[kind])]:
            file.delete()


def _kind(name: str) -> Kind:
    """The kind of the report with this file name."""
    return next((kind for kind in KEPT if kind and name.endswith(_ending(kind))), "")


def _ending(kind: Kind) -> str:
    return f"-{kind}.html" if kind else ".html"
