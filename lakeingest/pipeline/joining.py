"""Joining: new tables are made in the lake, and the spool watches them from there on."""

from lakeingest.core.position import Place
from lakeingest.core.progress import Progress
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.opening import is_exact, watched_from
from lakeingest.state.definition import keep_definition


def join(context: Context) -> None:
    """Make the tables that have no copy yet, empty; what the binlog says of them before now is not theirs.

    The binlog is read up to now for the other tables first: DDL of a table that is copied anew lies behind it then.
    Without GTIDs a low watermark is the start of a file, so the new tables are watched from there on.
    """
    at_now = context.spool.opened.gtids is not None or is_exact(context.connection)
    if context.joining and context.schemas and at_now:
        spool_to_now(context)
    start = _watched_from(context)
    for table, schema in list(context.joining.items()):
        with context.working_on(table):
            at = context.spool.position
            progress = Progress(table, schema.fingerprint, at.server_uuid, at.epoch, start)
            context.lease.assert_held()
            context.advance(context.target.create(schema, progress.created()), sound=True)
            context.schemas[table] = schema
            keep_definition(context.config.state, schema)
        del context.joining[table]


def _watched_from(context: Context) -> Place:
    """From where on the spool watches the new tables; one of which the binlog from there on cannot be read stops."""
    joined = watched_from(context.config, context.connection, context.spool, context.joining)
    context.spool = joined.spool
    for table, error in joined.stopped.items():
        context.stop(table, error)
        del context.joining[table]
    return joined.start
