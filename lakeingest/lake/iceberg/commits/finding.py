"""Looks at copies in an Iceberg catalog, for the notes of `lake.known_copies`."""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.commits.audit import Audit
from lakeingest.lake.iceberg.commits.entries import Entries
from lakeingest.lake.iceberg.tables.history import STAGING, is_building, is_marked, is_tip, resume_point
from lakeingest.lake.iceberg.tables.shape import assert_not_rewritten
from lakeingest.lake.known_copies import Known, Listings
from lakeingest.lake.target import Looked, Staged, Tables


@dataclass(frozen=True, slots=True)
class IcebergFinding:
    """`lake.known_copies.Finding`. `version` returns the version of Iceberg's format that a table is to have."""

    target: Tables
    entries: Entries
    audit: Audit
    version: Callable[[TableId], int]

    def find(self, table: TableId) -> Known | None:
        """What a look at the table finds now. None if no copy has its own name, or if the metadata is in a store."""
        with self.target.storage_errors():
            loaded = self.entries.find_anew(table)
            staged = None if loaded is None or is_building(loaded) else resume_point(table, loaded)
            if loaded is None or staged is None:
                return None
            assert_not_rewritten(table, loaded, staged.version)
            goes_on = self._goes_on(table, loaded, staged)
            listings = self.audit.listings(table, loaded, staged.version) if goes_on else None
            return Known.of(loaded.metadata_location, Looked(staged, dict(loaded.properties)), listings)

    def trust(self, table: TableId, listings: Listings) -> None:
        """Note that all files in `listings` exist: these are the files of the commit from which the run goes on."""
        self.audit.trust(table, listings)

    def _goes_on(self, table: TableId, loaded: Table, staged: Staged) -> bool:
        """True: a run goes on from this commit if the commit's files exist. False: a run makes another commit first."""
        is_ours = is_marked(loaded.metadata.snapshot_by_id(staged.version))
        is_older = loaded.metadata.format_version < self.version(table)
        return is_ours and not is_older and is_tip(loaded, STAGING, staged.version)
