"""Checks of a folder to which a run will write. Each check returns a finding, or None, and leaves no file behind."""

from lakeingest.disk import is_open_to_others
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File
from lakeingest.files.local import Local


def write_finding(name: str, folder: File) -> str | None:
    """A finding if no file can be created in the folder; else None. If the folder is missing, its parent is checked.

    `name` is the folder's name in the message.
    """
    try:
        folder.probe()
    except LakeIngestError as error:
        return f"the {name} {folder} cannot be written: {error}"
    except OSError as error:
        fix = "make it writable, or name another one in pipeline.yml"
        return f"the {name} {folder} cannot be written: {error.strerror}; {fix}"
    return None


def privacy_finding(folder: File) -> str | None:
    """A finding if other users of this machine can read the state folder, which has rows of the source; else None."""
    if not isinstance(folder, Local) or not is_open_to_others(folder):
        return None
    return f"other users of this machine can look into the state folder {folder}, which has rows: chmod 700 {folder}"


def space_finding(folder: File, needed: int) -> str | None:
    """A finding if the folder's disk has less than `needed` bytes free, or if its free space is unknown; else None.

    An object store has no limit, so there is no finding.
    """
    try:
        free = folder.free_bytes()
    except OSError as error:
        return f"{folder}: its free space is unknown: {error.strerror}"
    if free is None or free >= needed:
        return None
    return f"{folder} has {_gib(free)} free, less than {_gib(needed)}; free some, or name another one in pipeline.yml"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
