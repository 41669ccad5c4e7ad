"""Past: the versions of a copy that readers have seen, and the rows of one. Neither source nor Spark is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.history_table import FROM_POSITION, TO_POSITION, history_id, in_history
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StateUnreadable, UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_companions, open_target, open_versions
from lakeingest.lake.preflight import copied
from lakeingest.lake.versions import Published, Versions
from lakeingest.rows import table_schema
from lakeingest.state.definition import definition
from lakeingest.state.history_definitions import history_with


@dataclass(frozen=True, slots=True, repr=False)
class PublishedVersions(Report):
    """The versions of a copy that can still be read, the oldest first. The last one is what readers see."""

    table: TableId
    versions: tuple[Published, ...]

    headers = ("version", "position")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each version. The number of a version is a name, not a quantity, so it is shown as a text."""
        for version in self.versions:
            yield str(version.version), str(version.place)


def published_versions(config: Config, table: str) -> PublishedVersions:
    """The versions of the copy. Raises UsageError if the table has no copy."""
    [chosen] = tables_with_copy(config, [table])
    return PublishedVersions(chosen, tuple(published_since_start(config, open_versions(config), chosen)))


def rows(config: Config, table: str, version: int | None = None) -> pa.Table:
    """All rows of a version of the copy, in the order of the key; without a `version`, of the one that readers see.

    Raises UsageError if the table has no copy, or if the version cannot be read. Raises StateUnreadable if the
    definition of the version is not stored any more.
    """
    [chosen], versions = tables_with_copy(config, [table]), open_versions(config)
    published = _published_once(config, versions, chosen)
    found = published if version is None else [each for each in published if each.version == version]
    if not found:
        known = ", ".join(str(each.version) for each in published)
        raise UsageError(f"{chosen} has no version {version} that can be read; it has {known}")
    # without a `version`, `found` has all versions, and readers see the last one
    schema = _schema_of_version(config, versions, chosen, found[-1].version)
    shown = ShownRows(versions, schema, found[-1])
    return pa.Table.from_batches(shown.batches(), shown.fields).sort_by([(name, "ascending") for name in schema.key])


def rows_of_history(config: Config, table: str, place: Place) -> pa.Table:
    """The rows of a table as of a place in the binlog, from its history, in the form in which `rows` returns them.

    Columns that the table had at the place, but has no more, are left out. Raises UsageError if the table has no
    history, and StateUnreadable if the columns of the history are not known any more.
    """
    [chosen], target = tables_with_copy(config, [table]), open_companions(config)
    history = history_id(chosen)
    staged = target.inspect(history)
    if staged is None or staged.published is None:
        raise UsageError(f"{chosen} has no history; set history: scd2, and run once")
    schema = history_with(state_of(config), history, staged.progress.fingerprint, target.properties(history))
    if schema is None:
        raise StateUnreadable(f"{history}: nobody knows its columns any more; rename or drop it")
    # a position of a row at this place is `place` and then `.`; `~` sorts after `.`, so `limit` is after all of them
    shown, limit = rows_shown(config, chosen), f"{place}~"
    names = in_history(shown.schema).names  # those of the present columns, as the history has them
    fields, found = table_schema(schema), [table_schema(schema).empty_table()]
    readers = target.batch_readers(history, staged.published, fields.names)
    if readers is None:
        raise StateUnreadable(f"{history} is not as lakeingest wrote it; rename or drop it")
    for batch in (batch for reader in readers for batch in reader.batches()):
        begins, ends = batch[FROM_POSITION], batch[TO_POSITION]  # a current version has no end: NULL
        is_valid = pc.and_(pc.less(begins, limit), pc.fill_null(pc.greater(ends, limit), fill_value=True))
        found.append(batch.filter(is_valid).select(fields.names).cast(fields))
    at_place = pa.concat_tables(found).select(list(names)).rename_columns(list(shown.schema.names))
    at_place = at_place.select(shown.fields.names).cast(shown.fields)
    return at_place.sort_by([(name, "ascending") for name in shown.schema.key])


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The rows of one published version of a copy. `version` has their place. They can be read several times."""

    versions: Versions
    schema: TableSchema
    version: Published

    @property
    def fields(self) -> pa.Schema:
        """The Arrow schema of the rows. As in the changelog, columns outside the key are nullable."""
        names = self.schema.key
        return pa.schema([field.with_nullable(field.name not in names) for field in table_schema(self.schema)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in any order, read file by file."""
        fields = self.fields
        for batch in self.versions.rows(self.schema, self.version.version):
            yield from pa.Table.from_batches([batch]).select(fields.names).cast(fields).to_batches()


def rows_shown(config: Config, table: TableId) -> ShownRows:
    """The rows that readers of a copy see.

    Raises UsageError if nothing is published, and StateUnreadable if the definition is not stored any more.
    """
    versions = open_versions(config)
    last = _published_once(config, versions, table)[-1]
    return ShownRows(versions, _schema_of_version(config, versions, table, last.version), last)


def _published_once(config: Config, versions: Versions, table: TableId) -> Sequence[Published]:
    """The result of `published_since_start`. Raises UsageError if nothing is published yet."""
    published = published_since_start(config, versions, table)
    if not published:
        raise UsageError(f"{table} is not published yet; run once, then the same command again")
    return published


def published_since_start(config: Config, versions: Versions, table: TableId) -> Sequence[Published]:
    """The published versions of a copy that can still be read, from when the copy was last started over."""
    stored = definition(state_of(config), table)
    return versions.published(table, None if stored is None else stored.before)


def tables_with_copy(config: Config, names: Sequence[str] = ()) -> list[TableId]:
    """The tables with these names; without names, all included tables that have a copy.

    Raises UsageError if one of the named tables has no copy; without names, if no table has one.
    """
    existing = config.tables.select(copied(open_target(config), config.target))
    if not existing:  # tested here, because `choose` would say that tables.include is wrong
        raise UsageError(f"{', '.join(names) or 'the pipeline'} has no copy yet; run once, then the same command again")
    return config.tables.choose(existing, names)


def _schema_of_version(config: Config, versions: Versions, table: TableId, version: int) -> TableSchema:
    """The definition that the rows of a version have. Raises StateUnreadable if it is not stored any more."""
    stored, fingerprint = definition(state_of(config), table), versions.fingerprint(table, version)
    known = () if stored is None else (stored.schema, *stored.earlier)
    for schema in known:
        if schema.fingerprint == fingerprint:
            return schema
    raise StateUnreadable(f"{table}: the definition of the rows of version {version} is not kept any more")
