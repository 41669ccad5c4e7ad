"""What pipeline.yml cannot ask of shards: tables of the source that have one target.

Readers find all shards in one table. Its columns are those of all shards, found by their names, and the only commits on
it are lists of the files that the shards have published.
"""

import re
from collections.abc import Mapping, Sequence

from lakeingest.config.changelog import Changelog
from lakeingest.config.formats import FORMATS
from lakeingest.config.points import Points
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.config.table_properties import FORMAT_VERSION
from lakeingest.config.tables import HistoryKind, Tables
from lakeingest.config.target import Target
from lakeingest.errors import ConfigError, NotBuiltYet

_Check = tuple[bool, str, str]  # whether pipeline.yml has a key, the key with its value, and why shards cannot have it
_FIELDS = frozenset({"database", "table"})


def assert_target_table(
    target: Target,
    tables: Tables,
    points: Points,
    changelog: Changelog,
    history: HistoryKind,
    schema: SchemaChanges,
) -> None:
    """Raise NotBuiltYet for a target.table that is no name, and for keys that shards do not have.

    Raise ConfigError for a key that only shards have.
    """
    pattern = target.table
    fields = re.findall(r"\{(\w*)\}", pattern)
    has_other_braces = re.search(r"[{}]", re.sub(r"\{\w*\}", "", pattern)) is not None
    if not set(fields) <= _FIELDS or pattern.count(".") != 1 or has_other_braces:
        raise NotBuiltYet("target.table: only namespace.name is built yet, with {database} or {table} in it or neither")
    if not target.is_shared:
        if target.global_key:
            raise ConfigError("target.global_key is for a target.table without {database} or {table}; leave it out")
        return
    others = [
        (points.every is not None, "points.every", "a point would not show the table that readers query"),
        (changelog.table, "changelog.table", "`lakeingest changelog` gives the rows of each table"),
        (history != "none", "history", "leave it out"),
        (schema.dropped == "drop", "schema.dropped: drop", "a column stays while a shard may have it; leave it out"),
    ]
    checks = [*_of_target(target), *_of_tables(target, tables), *others]
    for applies, key, reason in checks:
        if applies:
            raise NotBuiltYet(
                f"{key} is not built yet for a target.table without {{database}} or {{table}}, whose copies are shards:"
                f" {reason}"
            )


def _of_target(target: Target) -> list[_Check]:
    """The checks of keys that only `target` has."""
    return [
        (
            FORMATS[target.format].by_folder,
            f"target.format: {target.format}",
            "no commit of it can name files of other tables; take Iceberg, or a target for each table",
        ),
        (
            target.catalog.gives_places,
            "target.catalog of Amazon S3 Tables",
            "it gives each table its own place, and shared tables were not tested there",
        ),
        (
            target.publish_together,
            "target.publish_together",
            "each shard is shown by a commit of its own; leave it out",
        ),
        (
            target.way_of_merging == "statement",
            "target.merge: statement",
            "Spark would give columns other ids in each shard; leave it out",
        ),
    ]


def _of_tables(target: Target, tables: Tables) -> list[_Check]:
    """The checks of `tables`, and of the keys that `target` and `tables.options` both have."""
    reason = "a table of another tool has no shards; copy to another name"
    checks: list[_Check] = [(tables.adopts, "tables.startup: adopt", reason)]
    checks += _of_block("target", target.properties, [("location", target.location)])
    for pattern, options in tables.options.items():
        keys = [
            ("location", options.location),
            ("partition_by", options.partition_by),
            ("sort_by", options.sort_by),
            ("history", options.history not in {None, "none"}),
        ]
        checks += _of_block(f"tables.options.{pattern}", options.properties, keys)
        marks_deleted = target.global_key and options.deletes == "soft"
        why_not = "a row that moves to another shard would stay in the old one, and have its key there; leave it out"
        checks.append((marks_deleted, f"tables.options.{pattern}.deletes: soft with target.global_key", why_not))
    return checks


def _of_block(where: str, properties: Mapping[str, str], keys: Sequence[tuple[str, object]]) -> list[_Check]:
    """The checks of the block `where`. `keys`: names and values of keys that shards cannot have."""
    has_other_version = properties.get(FORMAT_VERSION, "2") != "2"
    checks = [(has_other_version, f"{where}.properties: {FORMAT_VERSION}", "ids of rows would not be unique")]
    return checks + [(bool(value), f"{where}.{key}", "leave it out") for key, value in keys]
