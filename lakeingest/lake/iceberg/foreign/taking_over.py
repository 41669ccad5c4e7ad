"""Taking over a foreign table: what is known of it, whether it can become a copy, and the commit that makes it one.

The commit is on staging: readers see what the other tool wrote until the first publish. It gives the table our
properties and the copy's schema, writes all deletes as positions, and removes the files of deletes of the other tool.
It asserts that main and staging have not moved. While the table is compared with the source, its property TAKEN names
the snapshot and the schema that the other tool left. The first publish removes that property.
"""

from dataclasses import dataclass

from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import NotOurTable, PartitionsDiffer
from lakeingest.lake.foreign_tables import Foreign
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.data_files import Positions, has_field_ids
from lakeingest.lake.iceberg.files.live_rows import entries_of
from lakeingest.lake.iceberg.files.partitions import assert_outlived, marks_of_new, new_spec, our_spec
from lakeingest.lake.iceberg.files.row_delta import FileChanges
from lakeingest.lake.iceberg.foreign.foreign_deletes import ForeignDeletes, equality_deletes, unreadable_deletes
from lakeingest.lake.iceberg.foreign.foreign_schema import CopySchema, copy_schema
from lakeingest.lake.iceberg.merges.marks import assert_branch, mark
from lakeingest.lake.iceberg.storage.entry_fields import THIRD
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.expiry import limits
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, TAKEN, Taken
from lakeingest.lake.iceberg.tables.properties import PROPERTIES, VERSION
from lakeingest.lake.iceberg.tables.shape import LOCATION
from lakeingest.lake.iceberg.tables.staged_schema import add_lifted
from lakeingest.lake.marks import OWNER

_NAME_MAPPING = "schema.name-mapping.default"  # it finds the columns of files that have no field ids


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A foreign table that can be taken over: as it was loaded, its last snapshot, its files and the copy's schema."""

    loaded: Table
    main: Snapshot
    deletes: ForeignDeletes
    copy: CopySchema

    @classmethod
    def of(
        cls, loaded: Table, schema: TableSchema, options: TableOptions, version: int, *, keeps_dropped: bool
    ) -> "TakeOver":
        """How this table becomes the copy of a table with the definition `schema`.

        `options`: with names of columns as the copy has them. `version`: of Iceberg's format, as the user wants it.
        Raises NotOurTable with all reasons if it cannot become the copy.
        """
        refusals = list(_refusals_of_form(loaded, schema, version))
        if refusals:
            raise refused(loaded, schema, refusals)
        main = loaded.metadata.snapshot_by_name(MAIN)
        assert main is not None  # noqa: S101 - it was refused otherwise
        rows, delete_files = entries_of(loaded, main.snapshot_id)
        deletes = ForeignDeletes(TableFiles.of(loaded), loaded.specs(), rows, delete_files)
        copy = copy_schema(loaded.metadata, schema, options.adopt.drop, keeps_dropped=keeps_dropped)
        refusals = [*copy.refusals, *_refusals_of_files(loaded, deletes)]
        if (reason := options.refusal_of_form(schema)) is not None:
            refusals.append(reason)
        elif not copy.refusals:  # else columns are missing
            refusals += _refusals_of_partitions(loaded, schema, options, copy)
        if refusals:
            raise refused(loaded, schema, refusals)
        return cls(loaded, main, deletes, copy)

    def described(self, options: TableOptions) -> Foreign:
        """What is known of the table."""
        matched = self.copy.matched
        return Foreign(
            name=".".join(self.loaded.name()),
            version=self.main.snapshot_id,
            rows=sum(entry.data_file.record_count for entry in self.deletes.rows),
            equality_deletes=equality_deletes(self.deletes.deletes),
            dropped=matched.dropped,
            added=tuple(name for name, origin in matched.origins.items() if origin is None),
            widened=self.copy.widened,
            stopped=options.adopt.stopped or "",
            changed=self.main.timestamp_ms / 1000,
            is_begun=TAKEN in self.loaded.properties,
        )

    def dead(self, schema: TableSchema) -> Positions:
        """The positions of the foreign table's rows that are deleted, or have NULL in the copy's key."""
        foreign = self.copy.matched.origins
        # `or name` is never used: a table that lacks a column of the key was refused
        return self.deletes.dead([foreign[name] or name for name in schema.key])

    def transaction(
        self, current: Table, options: TableOptions, progress: Progress, changes: FileChanges
    ) -> Transaction:
        """The transaction with the marked commit, without the property that names the owner.

        `current` is the table as it is now: its main must still be at the snapshot `self.main`.
        """
        metadata = current.metadata
        taken = Taken(self.main.snapshot_id, metadata.current_schema_id, options.adopt.stopped or "")
        transaction = OneTransaction(current)
        transaction.set_properties(
            {
                **PROPERTIES,
                **limits(current.properties),
                **marks_of_new(options.partitions),
                OWNER: str(progress.table),
                LOCATION: metadata.location,
                TAKEN: taken.to_text(),
            }
        )
        schema = add_lifted(transaction, self.copy.schema)
        branches = ManageSnapshots(transaction=transaction).create_branch(self.main.snapshot_id, STAGING)
        assert_branch(branches, metadata, MAIN).commit()  # into the transaction
        mark(transaction, progress, self.main.snapshot_id, changes, schema=schema)
        return transaction


def refused(loaded: Table, schema: TableSchema, reasons: list[str]) -> NotOurTable:
    """The error for a foreign table that cannot be taken over."""
    return NotOurTable(
        f"{'.'.join(loaded.name())} is a table of another tool, and cannot become the copy of {schema.table}:"
        f" {'; '.join(reasons)}"
    )


def _refusals_of_form(loaded: Table, schema: TableSchema, version: int) -> list[str]:
    """Why the table cannot be taken over, by the metadata of the table and the definition of its copy."""
    metadata, found = loaded.metadata, list[str]()
    if not schema.ordered:
        found.append("only the server knows the order of its keys, so its rows cannot be compared by ranges of keys")
    if schema.keeps_deleted or schema.choices.metadata:
        found.append("its rows have no values for deletes: soft and for metadata columns; leave these options out")
    if metadata.format_version < VERSION:
        found.append("it has version 1 of Iceberg's format; set its property format-version to 2")
    elif metadata.format_version > THIRD or metadata.format_version > version:
        found.append(
            f"it has version {metadata.format_version} of Iceberg's format, and pipeline.yml asks for {version}"
            " (format-version in the properties of the table)"
        )
    if STAGING in metadata.refs:
        found.append(f"it has a branch {STAGING}; remove or rename it")
    if metadata.snapshot_by_name(MAIN) is None:
        found.append("it has no snapshot: drop it, a copy begins anew")
    return found


def _refusals_of_files(loaded: Table, files: ForeignDeletes) -> list[str]:
    """Why the table cannot be taken over, by its files."""
    found = list[str]()
    all_files = [entry.data_file for entry in (*files.rows, *files.deletes)]
    others = [file for file in all_files if file.file_format not in {FileFormat.PARQUET, FileFormat.PUFFIN}]
    if others:
        found.append(f"it has files that are not Parquet, such as {others[0].file_path}; rewrite them as Parquet")
    if encrypted := [file.file_path for file in all_files if file.key_metadata]:
        found.append(f"its files are encrypted, such as {encrypted[0]}")
    if (without := _file_without_ids(loaded, files)) is not None:
        found.append(
            f"{without} has columns without field ids, which {_NAME_MAPPING} names; call rewrite_data_files with"
            " rewrite-all"
        )
    if (reason := unreadable_deletes(loaded.schema(), files.deletes)) is not None:
        found.append(reason)
    if any(entry.data_file.spec_id != loaded.metadata.default_spec_id for entry in files.rows):
        found.append("some files are divided by an older partition spec; call rewrite_data_files with rewrite-all")
    return found


def _file_without_ids(loaded: Table, files: ForeignDeletes) -> str | None:
    """The path of a Parquet file of rows that has no field ids; None if there is none.

    Only a table with a name mapping may have such files, which others read by the names of columns. So the
    footers of any other table are not read. With a name mapping they are, because some tools give every table a
    mapping, and write field ids all the same.
    """
    # `loaded` has only the properties that our writers obey, and the mapping is none of these
    if _NAME_MAPPING not in loaded.catalog.load_table(loaded.name()).properties:
        return None
    of_parquet = (entry.data_file for entry in files.rows if entry.data_file.file_format is FileFormat.PARQUET)
    return next((file.file_path for file in of_parquet if not has_field_ids(files.table, file)), None)


def _refusals_of_partitions(loaded: Table, schema: TableSchema, options: TableOptions, copy: CopySchema) -> list[str]:
    """Why the table cannot be taken over, by its partitions and those that pipeline.yml asks for."""
    metadata = loaded.metadata
    wanted = [(field.source_id, field.transform) for field in new_spec(copy.schema, options.partitions).fields]
    present = [(field.source_id, field.transform) for field in metadata.spec().fields]
    # the spec that later runs would take for ours: they find it by the property that the take-over sets
    properties = {**metadata.properties, **marks_of_new(options.partitions)}
    ours = our_spec(metadata.model_copy(update={"properties": properties}))
    if wanted != present or ours is None or ours.spec_id != metadata.default_spec_id:
        names = metadata.schema().find_column_name
        fields = ", ".join(f"{field.transform} of {names(field.source_id)}" for field in metadata.spec().fields)
        partitions = ", ".join(options.partition_by)
        return [f"it is divided by {fields or 'nothing'}, and partition_by says {partitions or 'nothing'}"]
    try:
        assert_outlived(schema.table, metadata, copy.schema)
    except PartitionsDiffer as error:
        return [str(error)]
    return []
