"""Iceberg's REST catalog with a time limit for each request. PyIceberg sets none, and would wait for ever.

A request that only reads is repeated a few times within a second or two. A catalog may give access keys for each
table's folder.
"""

import functools
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import Capability, RestCatalog, TableResponse
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import AssertRefSnapshotId, TableUpdate, ValidatableTableRequirement
from requests import Response, Session
from urllib3.util import Retry

from lakeingest.config.catalogs import FirstPublishName
from lakeingest.core.clocks import NEAR
from lakeingest.lake.iceberg.expiry import AssertUnreferenced

_SECONDS = (10.0, 60.0)  # to connect, and between two bytes of an answer
# Only reads are repeated: each run makes many. For a commit, `commit` looks at the table before it tries again
_RETRIES = Retry(
    total=3,
    read=1,  # a server that does not answer takes a minute each time
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods={"GET", "HEAD"},
    backoff_factor=0.2,
    raise_on_status=False,
    respect_retry_after_header=False,
)
# services of Amazon that can neither rename nor register a table, by their names in signatures
_CANNOT_NAME = {"glue", "s3tables"}


class TimedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog with time limits. A request without an answer raises an error of `requests`.

    `ahead` says how many milliseconds this machine's clock is ahead of the server's; 0 if the two are near each other.
    """

    ahead = 0

    def commit_table(
        self, table: Table, requirements: tuple[ValidatableTableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit the updates.

        The protocol has no AssertUnreferenced: it cannot assert that nobody has added a branch or tag. In place of
        AssertUnreferenced, the commit asserts that each known branch and tag is where it was.
        """
        sent = [each for each in requirements if not isinstance(each, AssertUnreferenced)]
        if len(sent) < len(requirements):  # an AssertUnreferenced is to be replaced
            already_asserted = {each.ref for each in sent if isinstance(each, AssertRefSnapshotId)}
            sent += [
                AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
                for name, ref in table.metadata.refs.items()
                if name not in already_asserted
            ]
        return super().commit_table(table, tuple(sent), updates)  # type: ignore[no-any-return]

    def _response_to_table(self, name: tuple[str, ...], answer: TableResponse) -> Table:
        """A table in an answer. The catalog decides how its store is reached; the table's own properties do not."""
        plain = answer.metadata.model_copy(update={"properties": {}})
        table = super()._response_to_table(name, answer.model_copy(update={"metadata": plain}))
        table.metadata = answer.metadata
        return table

    def _response_to_staged_table(self, name: tuple[str, ...], answer: TableResponse) -> StagedTable:
        """A table that is only prepared, with the access keys for its folder.

        As with tables that exist, the table's properties change no setting of the client. PyIceberg would choose the
        access keys by the path of metadata.json, which does not exist yet.
        """
        metadata = answer.metadata
        plain = metadata.model_copy(update={"properties": {}})
        staged = super()._response_to_staged_table(name, answer.model_copy(update={"metadata": plain}))
        keys = self._resolve_storage_credentials(answer.storage_credentials, metadata.location)
        staged.io = self._load_file_io({**answer.config, **keys}, metadata.location)
        staged.metadata = metadata
        return staged

    def _create_session(self) -> Session:
        """PyIceberg's session, with time limits, repeated reads, and a comparison of the clocks at each answer."""
        session = super()._create_session()
        for adapter in session.adapters.values():
            adapter.max_retries = _RETRIES  # type: ignore[attr-defined]
        session.hooks["response"].append(self._compare_clocks)
        session.request = functools.partial(session.request, timeout=_SECONDS)  # type: ignore[method-assign]
        return session

    def _compare_clocks(self, response: Response, *_: object, **__: object) -> None:
        """Set `ahead` by the time in an answer: the server's clock gives the times that a commit does not name."""
        with suppress(KeyError, TypeError, ValueError):  # an answer without a readable time changes nothing
            seconds = time.time() - parsedate_to_datetime(response.headers["Date"]).timestamp()
            self.ahead = round(seconds * 1000) if seconds > NEAR.total_seconds() else 0


def best_way(catalog: Catalog) -> FirstPublishName:
    """The best way to the first publish that the server supports: `rename`, else `register`, else `own_name`."""
    assert isinstance(catalog, RestCatalog)  # noqa: S101 - its type in pipeline.yml
    if catalog.properties.get("rest.signing-name") in _CANNOT_NAME:
        return "own_name"
    endpoints = catalog._supported_endpoints  # noqa: SLF001 - PyIceberg has no public way
    if Capability.V1_RENAME_TABLE in endpoints:
        return "rename"
    return "register" if Capability.V1_REGISTER_TABLE in endpoints else "own_name"
