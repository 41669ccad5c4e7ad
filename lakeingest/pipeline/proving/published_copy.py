"""The published copy of a table, for comparisons with the source."""

import time

from lakeingest.config import Config
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import Retryable, StaleWriter
from lakeingest.files.file import state_of
from lakeingest.lake.target import Staged, Tables
from lakeingest.pipeline.schema.definitions import assert_unchanged
from lakeingest.state.lease import is_held
from lakeingest.state.stopped import read_stopped

PUBLISH_SECONDS = 30.0  # the longest wait for a run that has merged a table and not published it yet
_POLL_SECONDS = 0.2


def _published_copy(config: Config, target: Tables, schema: TableSchema) -> Staged:
    """The last commit of a table with a published copy. Readers may see an earlier commit.

    Raises an error if nothing is published, or if the last commit has another definition than the source.
    """
    staged = target.inspect(schema.table)
    if staged is None or staged.published is None or staged.progress.position is None:
        target.types(schema)  # raises the error of a type that the lake cannot hold: such a table is never published
        if (stopped := read_stopped(state_of(config), schema.table)) is not None:
            raise stopped.as_error()
        raise Retryable(f"{schema.table} is not published yet; run `lakeingest run` first")
    # if copies follow DDL, the next run mends this; otherwise `assert_unchanged` asks for a new copy
    if config.evolves and staged.progress.fingerprint != schema.fingerprint:
        raise Retryable(f"{schema.table}: its definition was changed since the last run; run `lakeingest run` first")
    assert_unchanged(staged, schema)
    return staged


def await_published(config: Config, target: Tables, schema: TableSchema) -> Staged:
    """The last commit of a table, once readers see it.

    Waits while a run may be about to publish this commit. Raises Retryable if readers do not see it after that, or if
    nothing is published, and an error if the commit has another definition than the source.
    """
    deadline = time.monotonic() + PUBLISH_SECONDS
    while True:
        try:
            staged = _published_copy(config, target, schema)
        except StaleWriter as error:  # a run is writing right now
            unseen: Retryable = error
        else:
            if staged.visible:
                return staged
            unseen = Retryable(f"{schema.table}: a run is under way or was interrupted; run `lakeingest run` first")
        if time.monotonic() > deadline or not is_held(state_of(config)):
            raise unseen
        time.sleep(_POLL_SECONDS)
