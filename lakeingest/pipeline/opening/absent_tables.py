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
    """The included tables that the source lists, and the other tables that have a copy.

    `listed`: the tables that the source lists; None: ask the source. The state folder tells which tables have a copy.
    If the folder was lost, the names in the catalog tell it. If the catalog cannot be asked, the result has only the
    included tables that the source lists.
    """
    listed_included = config.tables.select(source.tables() if listed is None else listed)
    target = open_target(config)
    try:
        with_copy = set(defined_tables(state_of(config)) or config.tables.select(copied(target, config.target)))
        held = copies(target, sorted(with_copy.difference(listed_included)))
    except LakeIngestError:  # the catalog's error is reported by the preflight
        return Known(tuple(listed_included))
    unloadable = [table for table, error in held.refused.items() if not isinstance(error, NotOurTable | NotOurCopy)]
    others = [*held.staged, *unloadable]  # with a copy of ours; not included, or not listed by the source
    unlisted = config.tables.select(others)  # the included ones among them: these the source does not list
    hidden = frozenset(table for table in unlisted if source.is_hidden(table))
    left = {table: GONE if table in unlisted else EXCLUDED for table in sorted(others) if table not in hidden}
    return Known(tuple(sorted({*listed_included, *hidden})), hidden, left)
