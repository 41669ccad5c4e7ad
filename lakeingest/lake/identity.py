"""The identity of a pipeline: an id that is made once and moves with its state folder.

identity.json   the id, and the place of the folder at its last use

A copy of a state folder belongs to another pipeline: while the folder at the noted place has the same id, this one gets
a new id. A folder on another machine cannot be looked at; it counts as moved.
"""

import socket
import uuid
from contextlib import suppress
from typing import Any

from lakeingest.config import Config
from lakeingest.config.place import Place
from lakeingest.core.ownership import Owner
from lakeingest.errors import LakeIngestError, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File, at, state_of

NAME = "identity.json"
_LOCAL = "file://"


def owner_here(config: Config) -> Owner:
    """The pipeline with its present id, which is '' before the first run with this state folder."""
    return Owner(config.name, _id_in(state_of(config)), _place(config))


def identify(config: Config) -> Owner:
    """The pipeline. Its state folder gets an id if it has none, or is a copy of another one.

    The caller holds the lease.
    """
    state, here = state_of(config), _place(config)
    doc = _read(state)
    number, last_place = str(doc.get("id", "")), str(doc.get("state", ""))
    if number and last_place == here:
        return Owner(config.name, number, here)
    if not number or _is_still_at(config, last_place, number):
        number = uuid.uuid4().hex
    (state / NAME).put_document({"id": number, "state": here})
    return Owner(config.name, number, here)


def _place(config: Config) -> str:
    """The address of the state folder. A local one includes the machine, because others may have the same path."""
    place = config.state
    return place.written if place.scheme else f"{_LOCAL}{socket.gethostname()}{place.path.resolve()}"


def _is_still_at(config: Config, place: str, number: str) -> bool:
    """Whether a state folder with this id is still at that place; False where that place cannot be looked at."""
    if place.startswith(_LOCAL):
        machine, _, path = place.removeprefix(_LOCAL).partition("/")
        return machine == socket.gethostname() and _id_in(at(Place.of(f"/{path}"), config.target.storage)) == number
    with suppress(OSError, LakeIngestError, ValueError):
        return _id_in(at(Place.of(place), config.target.storage)) == number
    return False


def _id_in(state: File) -> str:
    return str(_read(state).get("id", ""))


def _read(state: File) -> dict[str, Any]:
    """The document; an empty one if there is none. Raises StateUnreadable where it is damaged."""
    path = state / NAME
    try:
        doc = files.document(path)
        return {"id": str(doc["id"]), "state": str(doc["state"])}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(f"{path} cannot be read: {error}; remove it if nobody else uses the folder") from error
