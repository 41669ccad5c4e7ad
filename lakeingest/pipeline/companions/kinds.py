"""The kinds of companions that pipeline.yml asks for."""

from collections.abc import Mapping, Sequence

from lakeingest.core.schema import TableId
from lakeingest.pipeline.companions.changelog_table import ChangelogTable
from lakeingest.pipeline.companions.companion import Companion
from lakeingest.pipeline.companions.companions import Companions
from lakeingest.pipeline.companions.history import history_of
from lakeingest.pipeline.companions.transactions import Transactions
from lakeingest.pipeline.run.companion_tables import CompanionTables, NoCompanions
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def companions_of(edges: Edges, copied: Mapping[TableId, TableRun], *, takes_all: bool) -> CompanionTables:
    """The companions of a run. `copied`: the run's tables. `takes_all`: these are all that the pipeline updates."""
    changelog = ChangelogTable(edges) if edges.config.changelog.table else None
    in_order: Sequence[Companion | None] = (changelog, history_of(edges))  # None: pipeline.yml does not ask for it
    kinds = [kind for kind in in_order if kind is not None]
    database = edges.config.changelog.transactions
    listing = None if database is None or changelog is None else Transactions(edges, database, changelog.begin_of)
    return Companions(edges, kinds, copied, listing, takes_all) if kinds else NoCompanions()
