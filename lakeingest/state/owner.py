"""Which pipeline owns a state folder, and which server it copies from. Any other pipeline or server is refused.

owner.json   the name of the pipeline, and the server; created once, never replaced
"""

from dataclasses import asdict, dataclass

from lakeingest.errors import NotOurState, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.state import store


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The pipeline's name, and the uuid of its source."""

    pipeline: str
    server: str


def owner_of(folder: File) -> StateOwner | None:
    """Who owns the state in the folder; None if nobody does, as in a folder of the previous version."""
    path = folder / "owner.json"
    try:
        doc = store.read(path)
        return StateOwner(str(doc["pipeline"]), str(doc["server"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(f"{path} cannot be read: {error}; remove it if nobody else uses the folder") from error


def claim(folder: File, owner: StateOwner) -> None:
    """Make this owner the owner of the folder; NotOurState if it already has another one."""
    path = folder / "owner.json"
    if not files.exists(path):
        store.create(path, asdict(owner))
    assert_owner(folder, owner_of(folder), owner)


def assert_owner(folder: File, found: StateOwner | None, ours: StateOwner) -> None:
    """NotOurState unless the state is ours, or has no owner yet."""
    if found is None:
        return
    way_out = f"give this one a folder of its own in pipeline.yml (state: ./state_{ours.pipeline})"
    if found.pipeline != ours.pipeline:
        raise NotOurState(f"the state folder {folder} belongs to the pipeline {found.pipeline}; {way_out}")
    if found.server != ours.server:
        raise NotOurState(
            f"the state folder {folder} belongs to copies of the server {found.server}, and the source is "
            f"{ours.server}; {way_out}, or move the folder away if that server no longer exists"
        )
