"""Points in the state folder: points/<name>.json. Only the owner of the lease writes them (`core.copies.points`)."""

from lakeingest.core.copies.points import Point
from lakeingest.core.file_names import file_name
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "points"


def read_points(state: File) -> list[Point]:
    """All points, the oldest first.

    Raises StateUnreadable if a document is damaged, and StorageFailed if the folder cannot be listed.
    """
    folder, points = state / FOLDER, list[Point]()
    with store.storage_errors(folder, "read"):
        files = folder.listed("*.json")
    for file in files:
        try:
            points.append(Point.from_json(store.read(file)))
        except FileNotFoundError:  # it was dropped since the folder was listed
            continue
        except (OSError, *DAMAGED) as error:
            raise StateUnreadable(f"{file} is no point: {error}") from error
    return sorted(points, key=lambda point: (point.made_at, point.name))


def store_point(state: File, point: Point) -> None:
    """Store a point, or replace it. Raises StorageFailed if it cannot be written."""
    store.make_folder(state / FOLDER)
    store.replace(_path(state, point.name), point.to_json())


def delete_point(state: File, name: str) -> None:
    """Delete the document of a point. Raises StorageFailed if it cannot be deleted."""
    store.delete(_path(state, name))


def _path(state: File, name: str) -> File:
    return state / FOLDER / f"{file_name(name)}.json"
