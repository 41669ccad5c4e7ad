"""Copied tables that the source does not list as tables of the pipeline, and why: their copies are stale.

A server does not list tables that the user may not see. Without a right on it, the server denies access to a table,
even if the table does not exist. So a table to which access is not denied was dropped or renamed.
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
    """The tables that a pipeline copies, in `tables`; the user may not read the `hidden` ones among them.

    `left` are other tables with a copy, each with the reason why the copy is not updated.
    """

    tables: tuple[TableId, ...]
    hidden: frozenset[TableId] = frozenset()
    left: Mapping[TableId, str] = field(default_factory=dict)


def known_tables(config: Config, source: Source, listed: Collection[TableId] | None = None) -> Known:
    """The included tables that the source lists (`listed`), and those with a copy that it does not list.

    Copies are known from the state folder, or, if that was lost, by the names in the catalog.
    """
    shown = config.tables.select(source.tables() if listed is None else listed)
    target = open_target(config)
    try:
        names = set(defined_tables(state_of(config)) or config.tables.select(copied(target, config.target)))
        held = copies(target, sorted(names.difference(shown)))
    except LakeIngestError:  # the catalog's error is reported by the preflight
        return Known(tuple(shown))
    unusable = [table for table, error in held.refused.items() if not isinstance(error, NotOurTable | NotOurCopy)]
    ours = [*held.staged, *unusable]
    included = config.tables.select(ours)
    hidden = frozenset(table for table in included if source.is_hidden(table))
    left = {table: GONE if table in included else EXCLUDED for table in sorted(ours) if table not in hidden}
    return Known(tuple(sorted({*shown, *hidden})), hidden, left)
