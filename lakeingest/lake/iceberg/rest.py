"""Iceberg's REST catalog with a time limit for each request: PyIceberg sets none, and would wait for ever."""

import functools

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AssertRefSnapshotId, TableUpdate, ValidatableTableRequirement
from requests import Session

from lakeingest.lake.iceberg.expiry import AssertUnreferenced

_SECONDS = (10.0, 60.0)  # to connect, and between two bytes of an answer


class TimedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog; a request without an answer raises an error of `requests`."""

    def commit_table(
        self, table: Table, requirements: tuple[ValidatableTableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit. The protocol cannot assert that no ref is new: it asserts that each known one stands where it was."""
        if any(isinstance(one, AssertUnreferenced) for one in requirements):
            requirements = tuple(one for one in requirements if not isinstance(one, AssertUnreferenced))
            asserted = {one.ref for one in requirements if isinstance(one, AssertRefSnapshotId)}
            requirements += tuple(
                AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
                for name, ref in table.metadata.refs.items()
                if name not in asserted
            )
        return super().commit_table(table, requirements, updates)  # type: ignore[no-any-return]

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = functools.partial(session.request, timeout=_SECONDS)  # type: ignore[method-assign]
        return session
