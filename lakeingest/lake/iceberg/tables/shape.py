"""The shape of an Iceberg copy: its columns, its partitions and its folder, which nobody else may change.

Columns are compared by field id, name and type. An optional column must not become required, because the source can
have a NULL in it. The order and the comments of columns, sort orders, properties, tags and statistics are not compared:
they change no row.
"""

from collections.abc import Iterator, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.types import NestedField

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite, UnsupportedTable
from lakeingest.lake.iceberg.files.partitions import our_spec
from lakeingest.lake.iceberg.storage.entry_fields import THIRD
from lakeingest.lake.iceberg.tables.history import MAIN, Taken, is_marked, lineage, tip
from lakeingest.lake.iceberg.tables.leftovers import path_of
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import not_ours

LOCATION = "lakeingest.location"  # property of a table: the folder in which we made it


def assert_copy(table: TableId, loaded: Table) -> None:
    """Raises NotOurTable if the loaded table is no copy of this source table."""
    if loaded.properties.get(OWNER) != str(table):
        raise not_ours(".".join(loaded.name()), table)


def assert_ours(table: TableId, loaded: Table) -> None:
    """Raises an error if the table is no copy of ours, or someone else has changed its shape.

    Raises:
        NotOurTable: it is no copy of the source table.
        UnsupportedTable: someone else has raised its version of Iceberg's format.
        ForeignWrite: someone else has changed its columns, its partitions or its folder.

    """
    assert_copy(table, loaded)
    metadata = loaded.metadata
    if metadata.format_version > THIRD:
        raise UnsupportedTable(
            f"{table}: someone altered its copy to version {metadata.format_version} of Iceberg's format, and only"
            f" versions up to {THIRD} can be written; drop the copy, it must be made again"
        )
    ours = _expected_schema(metadata)
    differences = sorted(schema_differences(ours, metadata.schema()))
    if differences:
        raise ForeignWrite(f"{table}: someone else changed its columns: {', '.join(differences)}; {_way_out(table)}")
    spec = our_spec(metadata)
    if spec is None or spec.spec_id != metadata.default_spec_id:
        fields = ", ".join(field.name for field in metadata.spec().fields) or "none"
        raise ForeignWrite(f"{table}: someone else divided it into partitions: {fields}; {_way_out(table)}")
    made_in = loaded.properties.get(LOCATION, metadata.location)  # an earlier version set no such property
    if path_of(made_in).rstrip("/") != path_of(metadata.location).rstrip("/"):
        raise ForeignWrite(
            f"{table}: someone else changed its folder to {metadata.location} from {made_in}; {_way_out(table)}"
        )


def assert_version(table: TableId, loaded: Table, wanted: int) -> None:
    """Raises UnsupportedTable if the copy has a higher version of Iceberg's format than the one that users ask for."""
    if loaded.metadata.format_version > wanted:
        raise UnsupportedTable(
            f"{table}: its copy has version {loaded.metadata.format_version} of Iceberg's format, and pipeline.yml asks"
            f" for version {wanted}; set format-version in the properties of the table, or drop the copy: no version"
            " can be taken back"
        )


def assert_not_rewritten(table: TableId, loaded: Table, version: int) -> None:
    """Raises ForeignWrite if someone else has rewritten files that we need, while the table had another shape.

    We need the files of the snapshot that readers see, and of the snapshot `version`, which the next commit builds on.
    If files were rewritten while a column was missing, the column's values are lost. If files were rewritten into
    partitions of another spec, our files of deletes do not apply to them.
    """
    metadata, taken = loaded.metadata, Taken.of(loaded.properties)
    ours = _expected_schema(metadata)
    # Step 1: refuse a compaction of others, above our newest commit on main, that was made without one of our columns
    for snapshot, old_metadata in lineage(loaded, tip(loaded, MAIN)):
        if is_marked(snapshot) or (taken is not None and snapshot.snapshot_id == taken.snapshot):
            break
        schemas = {schema.schema_id: schema for schema in old_metadata.schemas}
        schema_id = old_metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
        schema = schemas.get(schema_id)
        may_lack_columns = schema is None or not _has_all_columns(schema, ours)
        has_files = snapshot.parent_snapshot_id is not None  # the first snapshot, which has no parent, has none
        if has_files and may_lack_columns:
            raise ForeignWrite(
                f"{table}: someone else compacted it to snapshot {snapshot.snapshot_id} while its columns were others,"
                f" which may have lost values; {_way_out(table)}"
            )
    # Step 2: refuse a file of another spec that the next commit would build on
    built_on = metadata.snapshot_by_id(version)
    if built_on is None or len(metadata.partition_specs) == 1:  # one: nobody has ever divided the table in another way
        return
    for manifest in built_on.manifests(loaded.io):
        has_files = manifest.has_added_files() or manifest.has_existing_files()
        if has_files and manifest.partition_spec_id != metadata.default_spec_id:
            raise ForeignWrite(
                f"{table}: someone else rewrote its files into partitions; call rewrite_data_files with rewrite-all,"
                f" or {_way_out(table)}"
            )


def is_being_taken(loaded: Table) -> bool:
    """Whether another tool made the table, and readers see no commit of ours yet."""
    return Taken.of(loaded.properties) is not None


def _way_out(table: TableId) -> str:
    return f"`lakeingest rollback {table}` takes that back"


def _expected_schema(metadata: TableMetadata) -> Schema:
    """The schema that readers should see: the first of these schemas that exists.

    0. The schema that another tool has left, if its table is being taken over.
    1. The current schema, if a commit of ours that is newer than main has it. This schema stays current if someone
       rolls main back over a schema change.
    2. The schema of our newest commit in the history of main.
    3. The schema of our newest commit that was made before main, if others have expired our commits in that history.
    4. The oldest schema.
    """
    schemas: dict[int | None, Schema] = {schema.schema_id: schema for schema in metadata.schemas}
    # case 0
    if (taken := Taken.of(metadata.properties)) is not None and taken.schema in schemas:
        return schemas[taken.schema]
    main = metadata.snapshot_by_name(MAIN)
    main_number = 0 if main is None else main.sequence_number or 0

    def is_ours(snapshot: Snapshot) -> bool:
        """Whether the snapshot is a commit of ours, and the table still has its schema."""
        return is_marked(snapshot) and snapshot.schema_id in schemas

    # case 1. Each case looks at as few snapshots as it can, because there may be hundreds
    later = (snapshot for snapshot in metadata.snapshots if (snapshot.sequence_number or 0) > main_number)
    if any(snapshot.schema_id == metadata.current_schema_id and is_ours(snapshot) for snapshot in later):
        return metadata.schema()
    # case 2. `ancestors_of` returns the newest snapshot first
    if (in_history := next(filter(is_ours, ancestors_of(main, metadata)), None)) is not None:
        return schemas[in_history.schema_id]
    # case 3
    before_main = [snapshot for snapshot in metadata.snapshots if (snapshot.sequence_number or 0) <= main_number]
    if ours := [snapshot for snapshot in before_main if is_ours(snapshot)]:
        return schemas[max(ours, key=lambda snapshot: snapshot.sequence_number or 0).schema_id]
    # case 4
    oldest_id = min(schema.schema_id for schema in metadata.schemas)
    return schemas[oldest_id]


def _has_all_columns(schema: Schema, ours: Schema) -> bool:
    """Whether a schema has all columns of our schema, by field id and type. The columns' names do not matter."""
    types = {field.field_id: field.field_type for field in schema.fields}
    return all(types.get(field.field_id) == field.field_type for field in ours.fields)


def schema_differences(ours: Schema, present: Schema) -> Iterator[str]:
    """The differences between our schema and the present one, in words."""
    our_fields, present_fields = _fields_by_id(ours), _fields_by_id(present)
    for field_id in our_fields.keys() | present_fields.keys():
        old, new = our_fields.get(field_id), present_fields.get(field_id)
        if new is None:
            assert old is not None  # noqa: S101 - one of the two schemas has the field id
            yield f"{old.name} was dropped"
        elif old is None:
            yield f"{new.name} was added"
        elif old.name != new.name:
            yield f"{old.name} was renamed {new.name}"
        elif old.field_type != new.field_type:
            yield f"{old.name} was {old.field_type} and is {new.field_type}"
        elif new.required and not old.required:
            yield f"{old.name} is required now"


def _fields_by_id(schema: Schema) -> Mapping[int, NestedField]:
    return {field.field_id: field for field in schema.fields}
