"""Checks that a run can write to an object store. The checks leave nothing behind."""

import uuid

from lakeingest import config
from lakeingest.lake.iceberg.durable import DurableFileIO


def unwritable(settings: config.Target) -> str | None:
    """The reason why no object can be written and deleted in the warehouse; None if one was written and deleted."""
    io = DurableFileIO(settings.pyiceberg_properties())
    probe = f"{settings.warehouse.uri}/.lakeingest-{uuid.uuid4().hex}"
    try:
        with io.new_output(probe).create() as out:
            out.write(b"an object can be written")
        io.delete(probe)
    except OSError as error:
        fix = "correct target.storage, the credentials or the rights"
        return f"the warehouse {settings.warehouse} cannot be written: {' '.join(str(error).split())}; {fix}"
    return None
