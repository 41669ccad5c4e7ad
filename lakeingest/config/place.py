"""Places of files: a local folder, or a URI of an object store, which a `Path` holds with a single slash."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from lakeingest.errors import NotBuiltYet

_REMOTE = re.compile(r"^([a-z][a-z0-9]+):/+")


def uri(place: Path) -> str:
    """The place as a URI."""
    return as_written(place) if _is_remote(place) else place.as_uri()


def as_written(place: Path) -> str:
    """The place as users write it."""
    return _REMOTE.sub(r"\1://", str(place))


def below(folder: Path, place: Path) -> Path:
    """The place; a relative path is relative to the folder."""
    return place if _is_remote(place) else (folder / place).resolve()


def _reached(place: Path, info: ValidationInfo) -> Path:
    if str(place).startswith("file:/"):
        place = Path(str(place).removeprefix("file:"))
    if _is_remote(place) and not info.context:
        raise NotBuiltYet(f"{as_written(place)}: only paths of the local file system are built yet")
    if not _is_remote(place) and info.context:
        raise ValueError(f"{place} is on this machine; a cluster needs a URI such as s3://bucket/folder")
    return place


def _is_remote(place: Path) -> bool:
    return _REMOTE.match(str(place)) is not None


# A local path; with a true validation context, which is for Spark on a cluster, a URI.
Place = Annotated[Path, AfterValidator(_reached)]
