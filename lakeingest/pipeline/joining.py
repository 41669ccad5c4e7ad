"""Joining: new tables are made in the lake, and the spool watches them from there on."""

from lakeingest.core.progress import Progress
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.opening import is_exact


def join(context: Context) -> None:
    """Make the tables that have no copy yet, empty; what the binlog says of them before now is not theirs.

    The binlog is read up to now for the other tables first: DDL of a table that is copied anew lies behind it then.
    Without GTIDs a low watermark is the start of a file, so the new tables are watched from where the spool begins.
    """
    spool = context.spool
    if context.joining and context.schemas and (spool.opened.gtids is not None or is_exact(context.connection)):
        spool_to_now(context)
    for table, schema in list(context.joining.items()):
        with context.working_on(table):
            at = spool.position
            progress = Progress(table, schema.fingerprint, at.server_uuid, at.epoch, at.place)
            context.lease.assert_held()
            context.advance(context.target.create(schema, progress.created()), sound=True)
            context.schemas[table] = schema
        del context.joining[table]
