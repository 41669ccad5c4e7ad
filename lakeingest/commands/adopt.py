"""Adopt: a person hands copies of another pipeline over to this pipeline, whose next run continues them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakeingest.commands.report import Report
from lakeingest.commands.signal import chosen_tables
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_adoptions
from lakeingest.lake.identity import identify
from lakeingest.lake.ownership import hand_over
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.state.lease import held
from lakeingest.state.owner import StateOwner, assert_owner, owner_of


@dataclass(frozen=True, slots=True)
class Adopted:
    """A copy that this pipeline owns now. `before` is the earlier owner; None if it was nobody, or this pipeline."""

    table: TableId
    before: str | None


class AdoptedTables(Report, tuple[Adopted, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The copies that were handed over."""

    headers = ("table", "owner before")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        for adopted in self:
            yield str(adopted.table), adopted.before


def adopt(config: Config, tables: Sequence[str], before: str | None = None) -> AdoptedTables:
    """Let this pipeline own the copies of the tables. From then on, commits of the earlier owner fail.

    `before` is the name of the pipeline that owns the copies now.

    Raises UsageError, and changes nothing, if a table has no copy, or if its copy is owned by a pipeline that is
    neither `before` nor this one. Raises LeaseHeld while a run of this pipeline is at work.
    """
    chosen = chosen_tables(config, tables)
    if (state_owner := owner_of(state_of(config))) is not None:
        # refuse the folder of another pipeline; the server is not compared, because the source is not asked
        assert_owner(state_of(config), state_owner, StateOwner(config.name, state_owner.server))
    with translate_errors(config.source, open_target(config)), held(state_of(config)) as lease:
        ours, adoptions = identify(config), open_adoptions(config)
        # Step 1: check the owners of all tables, so that nothing is changed if one of them is refused.
        owners = {table: adoptions.owner(table) for table in chosen}
        # only copies that another pipeline owns: the others are taken from nobody
        other_owners = {table: owner for table, owner in owners.items() if owner and not owner.is_same(ours)}
        for table, owner in other_owners.items():
            if owner.pipeline != before:
                raise UsageError(f"{table} belongs to {owner}; {hand_over(table, owner)}")
        # Step 2: adopt one table after the other, as long as this process holds the lease.
        for table in chosen:
            lease.assert_held()
            adoptions.adopt(table)
        return AdoptedTables(
            Adopted(table, str(other_owners[table]) if table in other_owners else None) for table in owners
        )
