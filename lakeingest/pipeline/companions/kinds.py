"""The kinds of companions that pipeline.yml asks for."""

from collections.abc import Callable, Mapping, Sequence

from lakeingest.core.schema import TableId
from lakeingest.pipeline.companions.changelog_table import ChangelogTable
from lakeingest.pipeline.companions.companion import Companion
from lakeingest.pipeline.companions.companions import Companions
from lakeingest.pipeline.companions.history import history_of
from lakeingest.pipeline.companions.transactions import Transactions
from lakeingest.pipeline.run.companion_tables import CompanionTables, NoCompanions
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def _changelog_table(edges: Edges) -> Companion | None:
    return ChangelogTable(edges) if edges.config.changelog.table else None


# Each returns the kind, or None if pipeline.yml does not ask for it. They are written in this order
_KINDS: Sequence[Callable[[Edges], Companion | None]] = (_changelog_table, history_of)


def companions_of(edges: Edges, copied: Mapping[TableId, TableRun], *, takes_all: bool) -> CompanionTables:
    """The companions of a run. `copied`: the tables of the run. `takes_all`: all that the pipeline updates."""
    kinds = [kind for kind in (make(edges) for make in _KINDS) if kind is not None]
    database = edges.config.changelog.transactions
    listing = None if database is None else Transactions(edges, database)
    return Companions(edges, kinds, copied, listing, takes_all) if kinds else NoCompanions()
