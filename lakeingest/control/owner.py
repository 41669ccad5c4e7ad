"""Whose state a folder holds: of one pipeline, copied from one server. What another one did with it would be lost work.

owner.json   the name of the pipeline, and the server; made once, never replaced
"""

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from lakeingest.errors import NotOurState, StateUnreadable, StorageFailed


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The pipeline's name, and the uuid of its source."""

    pipeline: str
    server: str


def owner_of(folder: Path) -> StateOwner | None:
    """Who owns the state in the folder; None where nobody does, as in one that the previous version made."""
    path = folder / "owner.json"
    try:
        doc = json.loads(path.read_text())
        return StateOwner(str(doc["pipeline"]), str(doc["server"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(f"{path} cannot be read: {error}; remove it if nobody else uses the folder") from error


def claim(folder: Path, owner: StateOwner) -> None:
    """Make the state in the folder this owner's; NotOurState where it is another one's already."""
    path = folder / "owner.json"
    new = path.with_name(f"owner-{uuid.uuid4().hex}.new")
    try:
        if not path.exists():
            with new.open("w") as file:
                json.dump(asdict(owner), file)
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)
    except FileExistsError:  # someone was quicker
        pass
    except OSError as error:
        raise StorageFailed(f"the state folder cannot be written: {path}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)
    assert_owner(folder, owner_of(folder), owner)


def assert_owner(folder: Path, found: StateOwner | None, ours: StateOwner) -> None:
    """NotOurState unless the state is ours, or nobody's yet."""
    way_out = f"give this one a folder of its own in pipeline.yml (state: ./state_{ours.pipeline})"
    if found is None:
        return
    if found.pipeline != ours.pipeline:
        raise NotOurState(f"the state folder {folder} belongs to the pipeline {found.pipeline}; {way_out}")
    if found.server != ours.server:
        raise NotOurState(
            f"the state folder {folder} belongs to copies of the server {found.server}, and the source is "
            f"{ours.server}; {way_out}, or move the folder away if that server is gone"
        )
