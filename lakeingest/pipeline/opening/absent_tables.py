"""Copied tables that the pipeline does not update any more, and why not.

Such a table is hidden from the user, is gone, is not included by the configuration any more, or is copied only once. A
server does not list tables on which the user has no right, and denies access to such a table even if the table does not
exist. So a table that is not listed, but to which access is not denied, was dropped or renamed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakeingest.config import Config
from lakeingest.core.cascades.cascades import family
from lakeingest.core.companions.companion import all_companions_of
from lakeingest.core.copies.startup import is_done
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, NotOurCopy, NotOurTable, OperatorNeeded
from lakeingest.files.file import state_of
from lakeingest.lake.preflight import copied, copies
from lakeingest.lake.target import Staged
from lakeingest.mysql.source import Source
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.state.definition import defined_tables
from lakeingest.state.signals import SignalFolder

EXCLUDED = "is no longer included; its copy stays as it is: include it, or drop the copy"
GONE = "is no longer in the source; its copy stays as it is: drop the copy, if nobody needs it"


@dataclass(frozen=True, slots=True)
class Known:
    """The tables of a pipeline.

    `tables`: the tables that the pipeline copies. `hidden`: the tables among `tables` that the user has no right to
    read. `done`: the tables among `tables` that are copied only once, and are copied. `left`: other tables with a copy,
    each with the reason why the copy is not updated.
    """

    tables: tuple[TableId, ...]
    hidden: frozenset[TableId] = frozenset()
    done: frozenset[TableId] = frozenset()
    left: Mapping[TableId, str] = field(default_factory=dict)

    def updated(self, tables: Collection[TableId] | None = None) -> list[TableId]:
        """Those of `tables` that a run changes; None: of all tables of the pipeline."""
        asked_about = self.tables if tables is None else tables
        return [table for table in asked_about if table not in self.done]


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
        absent = with_copy.difference(listed_included)
        # tables that are copied only once are asked about, too: their copies say whether they are done
        held = copies(target, sorted(with_copy if config.tables.copies_once else absent))
    except LakeIngestError:  # the catalog's error is reported by the preflight
        return Known(tuple(listed_included))
    unloadable = [table for table, error in held.refused.items() if not isinstance(error, NotOurTable | NotOurCopy)]
    # the tables with a copy of ours, and no companion, that are not included, or that the source does not list
    others = absent.intersection([*held.staged, *unloadable]).difference(all_companions_of(listed_included))
    unlisted = config.tables.select(others)  # the included ones among them: these the source does not list
    hidden = frozenset(table for table in unlisted if source.is_hidden(table))
    left = {table: GONE if table in unlisted else EXCLUDED for table in sorted(others) if table not in hidden}
    tables = tuple(sorted({*listed_included, *hidden}))
    done = copied_once(config, tables, held.staged)
    return Known(tables, hidden, done.difference(_parents_of_others(config, source, tables, done)), left)


def _parents_of_others(
    config: Config, source: Source, tables: Collection[TableId], done: Collection[TableId]
) -> Collection[TableId]:
    """The parents whose changes foreign keys may carry, outside the binlog, to the `tables` that are not in `done`.

    The caller takes these parents out of `done`, because the spool needs their changes. What the source's settings say
    about foreign keys does not count, because the binlog that is needed may be from before these settings.
    """
    others = [table for table in tables if table not in done and config.tables.of(table).cascades == "read"]
    if not done or not others:
        return ()
    unlogged = source.unlogged_keys(others, are_logged=False).keys
    try:
        return {key.parent for table in others for key in family(table, unlogged)}
    except OperatorNeeded:  # the foreign keys form a ring: the preflight refuses the table, and none counts as done
        return done


def copied_once(config: Config, tables: Collection[TableId], staged: Mapping[TableId, Staged]) -> frozenset[TableId]:
    """The tables that are copied only once, and for which a run has nothing left to do. `staged`: their copies."""
    if not config.tables.copies_once:
        return frozenset()
    signals = [document.signal for document in SignalFolder(state_of(config)).read()]
    with_copy = [table for table in tables if table in staged]
    return frozenset(table for table in with_copy if is_done(table, signals, visible=staged[table].visible))


def none_to_update(config: Config, names: Sequence[str]) -> frozenset[TableId]:
    """The chosen tables, if a run has nothing left to do for any of them, because each is copied only once; else none.

    `names` are as in `Tables.choose`. The source is asked only if `tables.startup` says so.
    """
    if not config.tables.copies_once:
        return frozenset()
    with Source.open(config.source) as source:
        known = known_tables(config, source)
    chosen = config.tables.choose(known.tables, names)
    return frozenset() if known.updated(chosen) else frozenset(chosen)
