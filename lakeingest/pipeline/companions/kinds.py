"""The kinds of companions that pipeline.yml asks for."""

from collections.abc import Mapping

from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.run.companion_tables import CompanionTables, NoCompanions
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def companions_of(edges: Edges, copied: Mapping[TableId, TableRun], *, takes_all: bool) -> CompanionTables:
    """The companions of a run. `copied`: the run's tables. `takes_all`: these are all that the pipeline updates."""
    config = edges.config
    has_histories = "scd2" in {config.history, *(options.history for options in config.tables.options.values())}
    if not config.changelog.table and not has_histories:
        return NoCompanions()
    # here, because most pipelines ask for none
    from lakeingest.pipeline.companions.changelog_table import ChangelogTable
    from lakeingest.pipeline.companions.companion import Companion
    from lakeingest.pipeline.companions.companions import Companions
    from lakeingest.pipeline.companions.history import Histories
    from lakeingest.pipeline.companions.transactions import Transactions

    kinds, listing = list[Companion](), None
    if config.changelog.table:
        changelog = ChangelogTable(edges)
        kinds.append(changelog)
        if (database := config.changelog.transactions) is not None:
            listing = Transactions(edges, database, changelog.begin_of)
    if has_histories:
        kinds.append(Histories(edges))
    return Companions(edges, kinds, copied, listing, takes_all)
