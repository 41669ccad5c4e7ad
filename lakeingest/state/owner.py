"""The owner of a state folder: a pipeline, and the server that it copies from.

Neither another pipeline nor copies of another server may use the folder.

owner.json   the pipeline's name, the server, and the layout of the folder; replaced only when one of these changes
"""

from dataclasses import asdict, dataclass

from lakeingest.errors import DAMAGED, NotOurState, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

LAYOUT = 1  # the version of the folder's layout; raise it with a change that older versions of lakeingest would misread


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The pipeline's name, and the uuid of the source server."""

    pipeline: str
    server: str


def owner_of(folder: File) -> StateOwner | None:
    """The owner that the folder names. None: the folder is new, or someone removed owner.json.

    Raises StateUnreadable if owner.json is damaged, or if a newer version of lakeingest has written it.
    """
    return _read(folder)[0]


def _read(folder: File) -> tuple[StateOwner | None, int]:
    """The owner that the folder names, and the layout of the folder; (None, 0) without owner.json."""
    path = folder / "owner.json"
    try:
        doc = store.read(path)
        owner = StateOwner(str(doc["pipeline"]), str(doc["server"]))
        layout = int(doc.get("layout", 1))
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
    """Store `owner` as the owner of a folder that has none. Raises NotOurState if the folder has another owner.

    It also raises StateUnreadable as `owner_of`. A folder of this owner with an older layout gets the current layout.
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
    """Replace the owner, because another server took over. The caller has claimed the folder for the old owner."""
    store.replace(folder / "owner.json", asdict(owner) | {"layout": LAYOUT})


def assert_owner(folder: File, recorded: StateOwner | None, ours: StateOwner) -> None:
    """Raise NotOurState if the folder names another owner, `recorded`, than `ours`. None: it names no owner."""
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
