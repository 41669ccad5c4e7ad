"""The shape of an Iceberg copy: whether someone else changed its columns, its partitions or its folder.

Columns are compared by field id, name and type. None may become required that was not, because the source may have a
NULL in it. Their order and comments, sort orders, properties, tags and statistics are ignored: they change no row.
"""

from collections.abc import Iterator, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import NestedField

from lakeingest.core.schema import TableId
from lakeingest.errors import ForeignWrite, UnsupportedTable
from lakeingest.lake.iceberg.history import MAIN, is_marked, lineage, tip
from lakeingest.lake.iceberg.leftovers import path_of
from lakeingest.lake.iceberg.properties import VERSION
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import not_ours

LOCATION = "lakeingest.location"  # property of a table: the folder that we made it in


def assert_copy(table: TableId, loaded: Table) -> None:
    """NotOurTable when it is no copy of the table."""
    if loaded.properties.get(OWNER) != str(table):
        raise not_ours(".".join(loaded.name()), table)


def assert_ours(table: TableId, loaded: Table) -> None:
    """As `assert_copy`; UnsupportedTable when someone else altered its version.

    ForeignWrite when someone else changed its columns or its folder, or divided it into partitions.
    """
    assert_copy(table, loaded)
    metadata = loaded.metadata
    if metadata.format_version > VERSION:
        raise UnsupportedTable(
            f"{table}: someone altered its copy to version {metadata.format_version} of Iceberg's format, and only"
            f" version {VERSION} can be written; drop the copy, it must be made again"
        )
    made = _made_with(metadata)
    found = sorted(changes(made, metadata.schema()))
    if found:
        raise ForeignWrite(f"{table}: someone else changed its columns: {', '.join(found)}; {_undo(table)}")
    if not metadata.spec().is_unpartitioned():
        fields = ", ".join(field.name for field in metadata.spec().fields)
        raise ForeignWrite(f"{table}: someone else divided it into partitions: {fields}; {_undo(table)}")
    made_in = loaded.properties.get(LOCATION, metadata.location)  # copies of an earlier version do not say it
    if path_of(made_in).rstrip("/") != path_of(metadata.location).rstrip("/"):
        raise ForeignWrite(
            f"{table}: someone else changed its folder to {metadata.location} from {made_in}; {_undo(table)}"
        )


def assert_whole(table: TableId, loaded: Table, version: int) -> None:
    """ForeignWrite when what readers see, or the base of the next commit, was rewritten in another shape.

    This is a rewrite into partitions, which our files of deletes do not have, or one while a column was missing, which
    lost its values.
    """
    metadata = loaded.metadata
    made = _made_with(metadata)
    for snapshot, then in lineage(loaded, tip(loaded, MAIN)):
        if is_marked(snapshot):
            break
        known = {schema.schema_id: schema for schema in then.schemas}
        schema = known.get(then.current_schema_id if snapshot.schema_id is None else snapshot.schema_id)
        if snapshot.parent_snapshot_id is not None and (schema is None or not _keeps(schema, made)):
            raise ForeignWrite(
                f"{table}: someone else compacted it to snapshot {snapshot.snapshot_id} while its columns were others,"
                f" which may have lost values; {_undo(table)}"
            )
    built_on = metadata.snapshot_by_id(version)
    if len(metadata.partition_specs) == 1 or built_on is None:
        return
    for manifest in built_on.manifests(loaded.io):
        has_files = manifest.has_added_files() or manifest.has_existing_files()
        if has_files and manifest.partition_spec_id != metadata.default_spec_id:
            raise ForeignWrite(
                f"{table}: someone else rewrote its files into partitions; call rewrite_data_files with rewrite-all,"
                f" or {_undo(table)}"
            )


def _undo(table: TableId) -> str:
    return f"`lakeingest rollback {table}` takes that back"


def _made_with(metadata: TableMetadata) -> Schema:
    """The schema that readers should see: the one with which we made the commit that main shows.

    If someone rolled main back over a schema change of the source, it is the current schema, which a later commit of
    ours has. If others expired the commit that main shows, it is that of our last commit before it; if they expired all
    of our commits, it is the oldest schema.
    """
    known = {schema.schema_id: schema for schema in metadata.schemas}
    main = metadata.snapshot_by_name(MAIN)
    shown = 0 if main is None else main.sequence_number or 0
    ours = [one for one in metadata.snapshots if is_marked(one) and one.schema_id in known]
    ours.sort(key=lambda one: one.sequence_number or 0)
    below = {one.snapshot_id for one in ancestors_of(main, metadata)}
    seen = [one.schema_id for one in ours if one.snapshot_id in below]
    seen = seen or [one.schema_id for one in ours if (one.sequence_number or 0) <= shown]
    if metadata.current_schema_id in {one.schema_id for one in ours if (one.sequence_number or 0) > shown}:
        return metadata.schema()
    return known[seen[-1] if seen and seen[-1] is not None else min(known)]


def _keeps(schema: Schema, made: Schema) -> bool:
    """Whether it has all columns that the table was made with, of the same types, under any name."""
    found = {field.field_id: field.field_type for field in schema.fields}
    return all(found.get(field.field_id) == field.field_type for field in made.fields)


def changes(made: Schema, found: Schema) -> Iterator[str]:
    """The differences, in words."""
    before, after = _by_id(made), _by_id(found)
    for number in before.keys() | after.keys():
        old, new = before.get(number), after.get(number)
        if new is None:
            assert old is not None  # noqa: S101 - the number is of one of them
            yield f"{old.name} was dropped"
        elif old is None:
            yield f"{new.name} was added"
        elif old.name != new.name:
            yield f"{old.name} was renamed {new.name}"
        elif old.field_type != new.field_type:
            yield f"{old.name} was {old.field_type} and is {new.field_type}"
        elif new.required and not old.required:
            yield f"{old.name} is required now"


def _by_id(schema: Schema) -> Mapping[int, NestedField]:
    return {field.field_id: field for field in schema.fields}
