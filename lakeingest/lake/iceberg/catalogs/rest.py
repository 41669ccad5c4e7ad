"""Iceberg's REST catalog with a time limit for each request. PyIceberg sets none, and would wait for ever.

A request that only reads is repeated a few times within a second or two. A catalog may give access keys for each
table's folder.
"""

import functools
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import API_PREFIX, Capability, Endpoint, HttpMethod, RestCatalog, TableResponse
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Namespace, StagedTable, Table, TableIdentifier
from pyiceberg.table.update import AssertRefSnapshotId, TableUpdate, ValidatableTableRequirement
from requests import Response, Session
from urllib3.util import Retry

from lakeingest.config.catalogs import FirstPublishName
from lakeingest.core.figures.clocks import NEAR
from lakeingest.lake.iceberg.catalogs.joint_catalog import JointCatalog, NotOffered, TableCommit
from lakeingest.lake.iceberg.tables.expiry import AssertUnreferenced

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
_TRANSACTIONS = "transactions/commit"  # a commit of several tables; PyIceberg has no call for it
# answers by which a server says that it does not have a request, although it offers the request
_NOT_OFFERED = {HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.NOT_IMPLEMENTED}
# services of Amazon that can neither rename nor register a table, by their names in signatures
_CANNOT_NAME = {"glue", "s3tables"}


class TimedRestCatalog(RestCatalog, JointCatalog):
    """PyIceberg's REST catalog with time limits. A request without an answer raises an error of `requests`.

    `ahead` says how many milliseconds this machine's clock is ahead of the server's; 0 if this is NEAR or less.
    """

    ahead = 0

    @property
    def commits_together(self) -> bool:
        """Whether the server offers the request for a commit of several tables."""
        offered = Endpoint(http_method=HttpMethod.POST, path=f"{API_PREFIX}/{_TRANSACTIONS}")
        return offered in self._supported_endpoints

    def commit_tables(self, commits: Sequence[TableCommit]) -> None:
        """Commit several tables by one request.

        Raises NotOffered if the server does not have the request, CommitFailedException if the server refuses it,
        HTTPError if the server fails.
        """
        changes = ",".join(self._change(commit).model_dump_json() for commit in commits)
        url = self.url(_TRANSACTIONS, prefixed=True)
        response = self._session.post(url, data=f'{{"table-changes":[{changes}]}}'.encode())
        if response.status_code in _NOT_OFFERED:
            raise NotOffered(f"the server cannot commit several tables, although it offers that: {response.text}")
        if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR and not response.ok:
            raise CommitFailedException(f"the server refuses to commit several tables: {response.text}")
        response.raise_for_status()

    def _change(self, commit: TableCommit) -> CommitTableRequest:
        """The part of the request that is about one table."""
        *namespace, name = commit.table.name()
        identifier = TableIdentifier(namespace=Namespace(namespace), name=name)
        sent = self._sent(commit.table, commit.requirements)
        return CommitTableRequest.model_validate(
            {"identifier": identifier, "requirements": sent, "updates": commit.updates}
        )

    def commit_table(
        self, table: Table, requirements: tuple[ValidatableTableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit the updates, with the requirements as `_sent` returns them."""
        return super().commit_table(table, self._sent(table, requirements), updates)  # type: ignore[no-any-return]

    @staticmethod
    def _sent(
        table: Table, requirements: tuple[ValidatableTableRequirement, ...]
    ) -> tuple[ValidatableTableRequirement, ...]:
        """The requirements as they are sent.

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
        return tuple(sent)

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
        """Set `ahead` by the time in an answer. The server's clock gives the time of a commit that names no time."""
        with suppress(KeyError, TypeError, ValueError):  # an answer without a readable time changes nothing
            seconds = time.time() - parsedate_to_datetime(response.headers["Date"]).timestamp()
            self.ahead = round(seconds * 1000) if seconds > NEAR.total_seconds() else 0


def best_way(catalog: Catalog) -> FirstPublishName:
    """The best way to make the first publish on this server: `rename`, else `register`, else `own_name`."""
    assert isinstance(catalog, RestCatalog)  # noqa: S101 - its type in pipeline.yml
    if catalog.properties.get("rest.signing-name") in _CANNOT_NAME:
        return "own_name"
    endpoints = catalog._supported_endpoints  # noqa: SLF001 - PyIceberg has no public way
    if Capability.V1_RENAME_TABLE in endpoints:
        return "rename"
    return "register" if Capability.V1_REGISTER_TABLE in endpoints else "own_name"
