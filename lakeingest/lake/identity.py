"""The identity of a pipeline: an id that is made once and moves with its state folder.

identity.json   the id, and the address of the folder at its last use

A copy of a state folder belongs to another pipeline, and gets a new id. A state folder is a copy if another folder with
the same id is still at the address in identity.json. If that address is on another machine, nobody can look there: the
state folder then counts as moved.
"""

import socket
import uuid
from contextlib import suppress
from typing import Any

from lakeingest.config import Config
from lakeingest.config.place import Place
from lakeingest.core.copies.ownership import Owner
from lakeingest.errors import LakeIngestError, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File, at, state_of

NAME = "identity.json"
_LOCAL = "file://"


def owner_here(config: Config) -> Owner:
    """The pipeline with its present id, which is '' before the first run with this state folder.

    Raises StateUnreadable if identity.json is damaged.
    """
    return Owner(config.name, _id_in(state_of(config)), address_of(config))


def identify(config: Config) -> Owner:
    """The pipeline of this state folder. The folder gets a new id if it has no id, or is a copy of another folder.

    A new id or address is stored in identity.json. The caller holds the lease. Raises as `owner_here`.
    """
    state, here = state_of(config), address_of(config)
    doc = _read(state)
    pipeline_id, last_address = str(doc.get("id", "")), str(doc.get("state", ""))
    if pipeline_id and last_address == here:
        return Owner(config.name, pipeline_id, here)
    is_copy = bool(pipeline_id) and _is_still_at(config, last_address, pipeline_id)
    if not pipeline_id or is_copy:  # a folder that was moved keeps its id
        pipeline_id = uuid.uuid4().hex
    (state / NAME).put_document({"id": pipeline_id, "state": here})
    return Owner(config.name, pipeline_id, here)


def address_of(config: Config) -> str:
    """The address of the state folder. A local one begins with the machine's name: other machines may have its path."""
    folder = config.state
    return folder.written if folder.scheme else f"{_LOCAL}{socket.gethostname()}{folder.path.resolve()}"


def _is_still_at(config: Config, address: str, wanted_id: str) -> bool:
    """Whether a state folder with this id is still at this address; False if nobody can look there.

    Raises StateUnreadable if the address is on this machine, and identity.json there is damaged.
    """
    if address.startswith(_LOCAL):
        machine, _, path = address.removeprefix(_LOCAL).partition("/")
        is_on_this_machine = machine == socket.gethostname()
        return is_on_this_machine and _id_in(at(Place.of(f"/{path}"), config.target.storage)) == wanted_id
    with suppress(OSError, LakeIngestError, ValueError):  # a store may be gone, or refuse us
        return _id_in(at(Place.of(address), config.target.storage)) == wanted_id
    return False


def _id_in(state: File) -> str:
    """The id in a state folder; '' if the folder has none yet."""
    return str(_read(state).get("id", ""))


def _read(state: File) -> dict[str, Any]:
    """The document in identity.json; empty if the file is missing. Raises StateUnreadable if the file is damaged."""
    path = state / NAME
    try:
        doc = files.document(path)
        return {"id": str(doc["id"]), "state": str(doc["state"])}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(f"{path} cannot be read: {error}; remove it if nobody else uses the folder") from error
