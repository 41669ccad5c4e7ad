"""Unpack: writes the files that ship with lakeingest for other programs, such as rules for Prometheus and notebooks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from lakeingest.commands.report import Report
from lakeingest.disk import share_reading_like
from lakeingest.errors import UsageError

# Each folder of the package's files, and what its files are for
FOLDERS = {
    "monitoring": "rules for Prometheus, a dashboard for Grafana",
    "notebooks": "onboard a table, see why copies are exact, replay, operate",
}


@dataclass(frozen=True, slots=True)
class UnpackedFile:
    """A file that ships with lakeingest. `is_new` is False if the file was there already, and was not changed."""

    path: Path
    purpose: str
    is_new: bool


@dataclass(frozen=True, slots=True, repr=False)
class Unpacked(Report):
    """The files that ship with lakeingest, as they are in a folder now."""

    files: tuple[UnpackedFile, ...]

    headers = ("file", "written", "for")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each file."""
        for file in self.files:
            yield file.path, "now" if file.is_new else "before, and kept", file.purpose


def unpack(folder: Path) -> Unpacked:
    """Write the files into folders below `folder`, as far as they are missing there. No file is overwritten.

    Whoever can read the folder can read the files, because Prometheus and Grafana may be other users. Raises UsageError
    if a file cannot be written.
    """
    # the nearest folder that exists says who can read
    share_reading_like(next(place for place in (folder, *folder.absolute().parents) if place.exists()))
    return Unpacked(tuple(_unpacked(folder)))


def _unpacked(folder: Path) -> Iterator[UnpackedFile]:
    """Write the missing files, and yield each file, written or not."""
    for name, purpose in FOLDERS.items():
        shipped = resources.files("lakeingest").joinpath("shipped", name).iterdir()
        for file in sorted((file for file in shipped if file.is_file()), key=lambda file: file.name):
            path = folder / name / file.name
            yield UnpackedFile(path, purpose, is_new=_write(path, file.read_bytes()))


def _write(path: Path, contents: bytes) -> bool:
    """Write a file, in a new folder if need be. Returns False if it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(contents)
    except FileExistsError:
        if path.exists():
            return False
        raise UsageError(f"{path} cannot be written: something of this name is in the way") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return True
