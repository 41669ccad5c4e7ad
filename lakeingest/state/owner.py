"""The pipeline that owns a state folder, and the server it copies from. Any other pipeline or server is refused.

owner.json   the name of the pipeline, the server, and the layout of the folder; replaced only when one of them changes
"""

from dataclasses import asdict, dataclass

from lakeingest.errors import DAMAGED, NotOurState, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

LAYOUT = 1  # of the folder's files; to be raised with a change that older versions would misread


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The pipeline's name, and the uuid of its source."""

    pipeline: str
    server: str


def owner_of(folder: File) -> StateOwner | None:
    """The owner of the state in the folder; None if there is none, as in a folder of the first version.

    Raises StateUnreadable where a newer version of lakeingest has written to it.
    """
    return _read(folder)[0]


def _read(folder: File) -> tuple[StateOwner | None, int]:
    path = folder / "owner.json"
    try:
        doc = store.read(path)
        owner, layout = StateOwner(str(doc["pipeline"]), str(doc["server"])), int(doc.get("layout", 1))
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    except (OSError, *DAMAGED) as error:
        raise StateUnreadable(f"{path} cannot be read: {error}; remove it if nobody else uses the folder") from error
    if layout > LAYOUT:
        raise StateUnreadable(
            f"the state folder {folder} is of layout {layout}, this version reads {LAYOUT}: a newer version of"
            " lakeingest wrote it; install that version again"
        )
    return owner, layout


def claim(folder: File, owner: StateOwner) -> None:
    """Give the folder this owner, and the current layout. Raises NotOurState if it has another owner.

    The caller holds the lease.
    """
    path, doc = folder / "owner.json", asdict(owner) | {"layout": LAYOUT}
    if not path.exists():
        store.create(path, doc)
    recorded, layout = _read(folder)
    assert_owner(folder, recorded, owner)
    if layout < LAYOUT:
        store.replace(path, doc)


def hand_over(folder: File, owner: StateOwner) -> None:
    """Give the folder this owner, because another server took over. The caller has claimed it for the last owner."""
    store.replace(folder / "owner.json", asdict(owner) | {"layout": LAYOUT})


def assert_owner(folder: File, recorded: StateOwner | None, ours: StateOwner) -> None:
    """Raises NotOurState unless the folder has our owner, or none yet."""
    if recorded is None:
        return
    way_out = f"give this one a folder of its own in pipeline.yml (state: ./state_{ours.pipeline})"
    if recorded.pipeline != ours.pipeline:
        raise NotOurState(f"the state folder {folder} belongs to the pipeline {recorded.pipeline}; {way_out}")
    if recorded.server != ours.server:
        raise NotOurState(
            f"the state folder {folder} belongs to copies of the server {recorded.server}, and the source is "
            f"{ours.server}; {way_out}, or move the folder away if that server no longer exists"
        )
