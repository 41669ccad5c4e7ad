"""Glue as moto has it, with the optimistic locking of the real one, which moto lacks: it ignores a commit's VersionId.

Run it as a program, with the port. The real Glue refuses a stale VersionId with ConcurrentModificationException.
"""

import sys
import threading
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import EmptyResult
from moto.glue import models, responses
from moto.server import main

_lock = threading.RLock()
_create_table = models.GlueBackend.create_table


def update_table(request: responses.GlueResponse) -> EmptyResult:
    """One of two commits on the same version is refused."""
    given = request.parameters["TableInput"]
    with _lock:
        table = request.glue_backend.get_table(request.parameters["DatabaseName"], given["Name"])
        version = request.parameters.get("VersionId")
        if version is not None and version != table.as_dict()["VersionId"]:
            raise JsonRESTError("ConcurrentModificationException", "Update table failed: concurrent modifications.")
        table.update(given)
    return EmptyResult()


def create_table(backend: models.GlueBackend, *given: Any, **more: Any) -> Any:
    """One of two creations under the same name is refused."""
    with _lock:
        return _create_table(backend, *given, **more)


if __name__ == "__main__":
    setattr(responses.GlueResponse, "update_table", update_table)  # noqa: B010 - a method of another signature
    setattr(models.GlueBackend, "create_table", create_table)  # noqa: B010
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
