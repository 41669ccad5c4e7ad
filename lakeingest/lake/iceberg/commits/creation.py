"""The creation of a table: with its columns, folder and properties, and with its first commit."""

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest import config
from lakeingest.config.table_properties import FORMAT_VERSION
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable
from lakeingest.lake.iceberg.commits.commit import until_known
from lakeingest.lake.iceberg.commits.transaction import OneCreation, OneTransaction
from lakeingest.lake.iceberg.files.partitions import marks_of_new, new_spec
from lakeingest.lake.iceberg.files.row_delta import append_nothing
from lakeingest.lake.iceberg.files.sorting import marks_of_new as sort_marks
from lakeingest.lake.iceberg.files.sorting import new_order
from lakeingest.lake.iceberg.files.types import iceberg_schema
from lakeingest.lake.iceberg.merges.marks import mark
from lakeingest.lake.iceberg.tables.evolution import Form
from lakeingest.lake.iceberg.tables.expiry import limits
from lakeingest.lake.iceberg.tables.history import BOOTSTRAPPING, MAIN, STAGING, STATE, assert_staged
from lakeingest.lake.iceberg.tables.location import assert_free, assert_outside, new_location
from lakeingest.lake.iceberg.tables.naming import Name
from lakeingest.lake.iceberg.tables.properties import PROPERTIES
from lakeingest.lake.iceberg.tables.shape import LOCATION
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale


def creation_transaction(
    catalog: Catalog,
    name: Name,
    schema: TableSchema,
    form: Form,
    settings: config.Target,
    chosen: str | None,
) -> Transaction:
    """The transaction that creates the table under this name, in the `chosen` folder; None: in a new folder.

    A REST catalog is asked to prepare the transaction, which changes nothing in the catalog. After an error the catalog
    is asked again. Raises StaleWriter if another table has the name; NotOurTable if the folder is in use.
    """
    table = schema.table
    fields = iceberg_schema(schema, form.comments)
    location = chosen or new_location(settings, table)
    properties = _properties(table, form, fields)
    spec, order = new_spec(fields, form.partitions), new_order(fields, form.sorting)
    transactions: list[Transaction] = []  # `ask` appends the transaction, if the catalog prepares it

    def ask() -> None:
        creation = catalog.create_table_transaction(name, fields, location, spec, order, properties)
        transactions.append(OneCreation.of(creation))

    def look() -> bool:
        """False: ask again. Raises StaleWriter if another table has the name now."""
        if catalog.table_exists(name):
            raise stale(table)
        return False

    until_known(table, ask, look)
    transaction = transactions[-1]
    io = transaction._table.io  # noqa: SLF001 - a catalog may give rights to this folder only
    _assert_usable(io, table, location, is_new=chosen is None)
    return transaction


def make_at_once(
    catalog: Catalog, name: Name, schema: TableSchema, form: Form, settings: config.Target, chosen: str | None
) -> Table:
    """Make a table without a snapshot under its own name, unless the name is taken. Returns the table of this name.

    A table that has the name may be of a killed run, of a run at work, or of others: the caller checks it. If two runs
    get the same table here, the first commit of only one of them takes effect. Raises NotOurTable if the folder of a
    table without a snapshot is in use.
    """
    table = schema.table
    fields = iceberg_schema(schema, form.comments)
    location = chosen  # stays None if the catalog chooses the folder
    if location is None and not settings.catalog.gives_places:
        location = new_location(settings, table)
    properties = {**_properties(table, form, fields), STATE: BOOTSTRAPPING}
    spec, order = new_spec(fields, form.partitions), new_order(fields, form.sorting)

    def create() -> None:
        catalog.create_table(name, fields, location, spec, order, properties)

    def exists() -> bool:
        return catalog.table_exists(name)

    if not exists():
        until_known(table, create, exists)
    loaded = catalog.load_table(name)
    if location is not None and not loaded.metadata.snapshots:  # we chose the folder, and no run has begun to fill it
        _assert_usable(loaded.io, table, location, is_new=chosen is None)
    return loaded


def _properties(table: TableId, form: Form, fields: Schema) -> dict[str, str]:
    """The properties of a new table with these columns."""
    marks = {OWNER: str(table), **marks_of_new(form.partitions), **sort_marks(fields, form.sorting)}
    return {**PROPERTIES, FORMAT_VERSION: str(form.version), **limits({}), **form.all_properties, **marks}


def _assert_usable(io: FileIO, table: TableId, location: str, *, is_new: bool) -> None:
    """Raises NotOurTable if the folder is in use. A new folder is empty, but may be inside of another table's."""
    if is_new:
        assert_outside(io, table, location)
    else:
        assert_free(io, table, location)


def assert_same_columns(schema: TableSchema, loaded: Table) -> None:
    """Raises NotOurTable if a table that a run has begun, and that has no progress, has other columns than `schema`."""

    def columns_of(iceberg: Schema) -> list[tuple[str, str, bool]]:
        """The name and the type of each column, and whether it is required. Field ids and comments may differ."""
        return [(field.name, str(field.field_type), field.required) for field in iceberg.fields]

    if columns_of(iceberg_schema(schema, {})) != columns_of(loaded.schema()):
        name = ".".join(loaded.name())
        raise NotOurTable(f"{name} was begun with other columns than {schema.table} has now, and is empty; drop it")


def begin(transaction: Transaction, progress: Progress, marks: Mapping[str, str]) -> None:
    """Write an empty snapshot on main, if main has none, and a commit on staging with the first progress.

    `marks` are properties of the table.
    """
    transaction.set_properties({LOCATION: transaction.table_metadata.location, **marks})
    main = transaction.table_metadata.refs.get(MAIN)
    # main has a snapshot if an earlier run has begun the table under its own name
    base = append_nothing(transaction, MAIN) if main is None else main.snapshot_id
    ManageSnapshots(transaction=transaction).create_branch(base, STAGING).commit()  # into `transaction`
    mark(transaction, progress, base)


def progress_removal(loaded: Table) -> Transaction:
    """The transaction that removes an unpublished table's progress: staging begins anew at a commit that has none."""
    transaction = OneTransaction(loaded)
    # this `commit` only adds to the transaction
    ManageSnapshots(transaction=transaction).create_branch(loaded.metadata.refs[MAIN].snapshot_id, STAGING).commit()
    append_nothing(transaction, STAGING)
    return transaction


def end_building(transaction: Transaction, table: TableId, loaded: Table, version: int) -> None:
    """Let the commit of `transaction`, which moves main to this version, end the state of building.

    From this commit on, a table under its own name counts as published. The commit also asserts where staging is. So if
    one run publishes the table and another run discards it, only the first of these commits takes effect. Raises
    StaleWriter if the version is no longer in the history of staging.
    """
    assert_staged(table, loaded, version)
    transaction.remove_properties(STATE)
