"""Copied tables that the source does not list as tables of the pipeline, and why: each copy of one is stale.

A server leaves tables out that the user may not see. To a user without a right on a table it also denies one that is
not there; so one that is not denied was dropped or renamed.
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
from lakeingest.state.definition import defined

EXCLUDED = "is no longer included; its copy stays as it is: include it, or drop the copy"
GONE = "is no longer in the source; its copy stays as it is: drop the copy, if nobody needs it"


@dataclass(frozen=True, slots=True)
class Known:
    """The tables of a pipeline: those that it copies, of which the user may not read the `hidden` ones.

    `left` are other tables with a copy, each with the reason why it is not updated.
    """

    tables: tuple[TableId, ...]
    hidden: frozenset[TableId] = frozenset()
    left: Mapping[TableId, str] = field(default_factory=dict)


def known_tables(config: Config, source: Source, listed: Collection[TableId] | None = None) -> Known:
    """The included tables that the source lists (`listed`), and those with a copy that it does not list.

    Copies are known from the state folder, or, where it was lost, by the names that the catalog has.
    """
    shown = config.tables.select(source.tables() if listed is None else listed)
    target = open_target(config)
    try:
        others = set(defined(state_of(config)) or config.tables.select(copied(target, config.target))).difference(shown)
        held = copies(target, sorted(others))
    except LakeIngestError:  # of the catalog: the preflight reports it
        return Known(tuple(shown))
    ours = [
        *held.staged,
        *(one for one, error in held.refused.items() if not isinstance(error, NotOurTable | NotOurCopy)),
    ]
    included = config.tables.select(ours)
    hidden = frozenset(table for table in included if source.is_hidden(table))
    left = {table: GONE if table in included else EXCLUDED for table in sorted(ours) if table not in hidden}
    return Known(tuple(sorted({*shown, *hidden})), hidden, left)
