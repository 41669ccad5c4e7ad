"""Publishes of Iceberg tables: each in a separate commit, or several in one commit, if the catalog can make one.

Commits of both kinds assert the same of each table: that main and staging are where they were, and that nobody has
changed the columns or the partitions. So it does not matter by which kind of commit a publish takes effect, nor whether
commits of both kinds arrive.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.iceberg.catalogs.joint_catalog import JointCatalog
from lakeingest.lake.iceberg.commits.audit import Audit
from lakeingest.lake.iceberg.commits.commit import Request, commit, commit_together
from lakeingest.lake.iceberg.commits.entries import Entries
from lakeingest.lake.iceberg.commits.publication import publication
from lakeingest.lake.iceberg.tables.evolution import Form
from lakeingest.lake.iceberg.tables.expiry import trim
from lakeingest.lake.iceberg.tables.history import assert_unmoved
from lakeingest.lake.iceberg.tables.staged_schema import as_staged
from lakeingest.lake.joint_answer import JointAnswer
from lakeingest.lake.target import Prepared, Staged, Tables


@dataclass(frozen=True, slots=True)
class IcebergPrepared:
    """`lake.target.Prepared` of an Iceberg table.

    `loaded`: the table as the audit has found it. `build`: makes, for a loaded table, the transaction that publishes.
    """

    publishing: "IcebergPublishing"
    staged: Staged
    loaded: Table
    build: Callable[[Table], Transaction]

    @property
    def table(self) -> TableId:
        """The table."""
        return self.staged.progress.table

    def show(self) -> Staged:
        """Move main of this table."""
        with self.publishing.target.storage_errors():
            find = self.publishing.entries.find
            try:
                commit(self.table, self.build(self.loaded), lambda: find(self.table), self.build)
            except StaleWriter:
                # raises a more exact error if main has moved
                assert_unmoved(self.publishing.entries.existing(self.table), self.staged)
                raise
            return self.finish()

    def finish(self) -> Staged:
        """Delete old versions of metadata.json, and give a new table its own name. Returns the published state."""
        with self.publishing.target.storage_errors():
            trim(self.loaded)
            self.publishing.entries.give_name(self.table, self.loaded)
        return Staged(self.staged.progress, self.staged.version, published=self.staged.version)


@dataclass(frozen=True, slots=True)
class IcebergPublishing:
    """Prepares publishes.

    `load` loads a table; it raises StaleWriter if the table lacks a given commit. `form` returns what readers are to
    find beside the rows.
    """

    target: Tables
    entries: Entries
    load: Callable[[TableId, int], Table]
    audit: Audit
    form: Callable[[TableSchema], Form]

    def prepare(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> IcebergPrepared:
        """Check the commit `staged.version`, which need not be the last on staging. Returns the commit's publish."""
        table, form = staged.progress.table, self.form(schema)
        loaded = self.load(table, staged.version)
        self.audit.assert_publishable(table, as_staged(loaded, staged.version), staged, audit)

        def build(current: Table) -> Transaction:
            """The transaction of this publish on the table `current`."""
            return self.entries.add_owner(publication(current, staged, form, properties), current)

        return IcebergPrepared(self, staged, loaded, build)


@dataclass(frozen=True, slots=True)
class _Requested(IcebergPrepared):
    """A publish with the request by which it takes part in a commit of several tables."""

    request: Request

    def show(self) -> Staged:
        """Move main of this table.

        The catalog is asked for the table first. If the catalog is away, which may be why the commit of all tables
        failed, this raises the catalog's error: the table has no fault.
        """
        with self.publishing.target.storage_errors():
            self.publishing.entries.existing(self.table)
        return IcebergPrepared.show(self)  # by name: `slots` makes the class anew, and `super()` would miss it


@dataclass(frozen=True, slots=True)
class IcebergJoint:
    """`lake.target.Joint` on a catalog that commits several tables at once."""

    catalog: JointCatalog
    publishing: IcebergPublishing

    @classmethod
    def of(cls, catalog: Catalog, publishing: IcebergPublishing) -> "IcebergJoint | None":
        """The publishes of several tables on this catalog; None if it can commit only one table at once."""
        return cls(catalog, publishing) if isinstance(catalog, JointCatalog) and catalog.commits_together else None

    def prepare(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Prepared:
        """Check the commit as for a separate publish, and prepare its part of the request."""
        with self.publishing.target.storage_errors():
            ready = self.publishing.prepare(staged, schema, properties, audit)
            request = Request.of(ready.build(ready.loaded))
            return _Requested(ready.publishing, ready.staged, ready.loaded, ready.build, request)

    def show(self, prepared: Sequence[Prepared]) -> JointAnswer:
        """Move main of all these tables in one commit."""
        ours = [each for each in prepared if isinstance(each, _Requested)]
        assert len(ours) == len(prepared), "prepared by another lake"  # noqa: S101
        find = self.publishing.entries.find
        return commit_together(self.catalog, [each.request for each in ours], lambda number: find(ours[number].table))
