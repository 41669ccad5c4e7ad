"""Copied tables that the pipeline does not update any more, and why not.

Such a table is hidden from the user, is gone, or is not included by the configuration any more. A server does not list
tables on which the user has no right, and denies access to such a table even if the table does not exist. So a table
that is not listed, but to which access is not denied, was dropped or renamed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakeingest.config import Config
from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError, NotOurCopy, NotOurTable
from lakeingest.files.file import state_of
from lakeingest.lake.preflight import copied, copies
from lakeingest.mysql.source import Source
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.state.definition import defined_tables

EXCLUDED = "is no longer included; its copy stays as it is: include it, or drop the copy"
GONE = "is no longer in the source; its copy stays as it is: drop the copy, if nobody needs it"


@dataclass(frozen=True, slots=True)
class Known:
    """The tables of a pipeline.

    `tables`: the tables that the pipeline copies. `hidden`: the tables among `tables` that the user has no right to
    read. `left`: other tables with a copy, each with the reason why the copy is not updated.
    """

    tables: tuple[TableId, ...]
    hidden: frozenset[TableId] = frozenset()
    left: Mapping[TableId, str] = field(default_factory=dict)


def known_tables(config: Config, source: Source, listed: Collection[TableId] | None = None) -> Known:
    """The included tables that the source lists, and the copied tables that it does not list.

    `listed`: the tables that the source lists; None: ask the source. The state folder tells which tables have a copy.
    If the folder was lost, the names in the catalog tell it.
    """
    included_now = config.tables.select(source.tables() if listed is None else listed)
    target = open_target(config)
    try:
        names = set(defined_tables(state_of(config)) or config.tables.select(copied(target, config.target)))
        held = copies(target, sorted(names.difference(included_now)))
    except LakeIngestError:  # the catalog's error is reported by the preflight
        return Known(tuple(included_now))
    unloadable = [table for table, error in held.refused.items() if not isinstance(error, NotOurTable | NotOurCopy)]
    ours = [*held.staged, *unloadable]
    included = config.tables.select(ours)
    hidden = frozenset(table for table in included if source.is_hidden(table))
    left = {table: GONE if table in included else EXCLUDED for table in sorted(ours) if table not in hidden}
    return Known(tuple(sorted({*included_now, *hidden})), hidden, left)
