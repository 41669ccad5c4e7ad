"""What following the source has taken, stored in the state folder (`core.figures.following.Followed`).

following.json   the last count of the run that follows, or that followed last
"""

from lakeingest.core.figures.following import Followed
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "following.json"


def read_following(state: File) -> Followed | None:
    """The last count; None if no run has followed for long enough, or if the file is damaged."""
    return store.read_or(state / NAME, Followed.of_json, None)


def store_following(state: File, followed: Followed) -> None:
    """Replace the stored count. Raises StorageFailed if it cannot be written."""
    store.replace(state / NAME, followed.to_json())
