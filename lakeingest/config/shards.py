"""What pipeline.yml cannot ask of shards: tables of the source that have one target.

Readers find all shards in one table. Its columns are those of all shards, found by their names, and the only commits on
it are lists of the files that the shards have published.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakeingest.config.formats import FORMATS
from lakeingest.config.table_properties import FORMAT_VERSION
from lakeingest.errors import NotBuiltYet

if TYPE_CHECKING:
    from lakeingest.config.load import Config

_FIELDS = frozenset({"database", "table"})


def assert_target_table(config: "Config") -> None:
    """Raises NotBuiltYet for a target.table that is no name, and for keys that shards do not have."""
    pattern = config.target.table
    fields = re.findall(r"\{(\w*)\}", pattern)
    if not set(fields) <= _FIELDS or pattern.count(".") != 1 or re.search(r"[{}]", re.sub(r"\{\w*\}", "", pattern)):
        raise NotBuiltYet("target.table: only namespace.name is built yet, with {database} or {table} in it or neither")
    if config.target.is_shared and (refused := next(iter(_refused(config)), None)) is not None:
        key, reason = refused
        raise NotBuiltYet(
            f"{key} is not built yet for a target.table without {{database}} or {{table}}, whose copies are shards:"
            f" {reason}"
        )


def _refused(config: "Config") -> list[tuple[str, str]]:
    """The keys of pipeline.yml that shards cannot have, each with its value and the reason."""
    target, tables = config.target, config.tables
    checks: list[tuple[bool, str, str]] = [
        (
            FORMATS[target.format].by_folder,
            f"target.format: {target.format}",
            "no commit of it can name files of other tables; take Iceberg, or a target for each table",
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
        (tables.adopts, "tables.startup: adopt", "a table of another tool has no shards; copy to another name"),
        (config.points.every is not None, "points.every", "a point would not show the table that readers query"),
        (config.changelog.table, "changelog.table", "`lakeingest changelog` gives the rows of each table"),
        (config.history != "none", "history", "leave it out"),
        (
            not config.keeps_dropped,
            "schema.dropped: drop",
            "a column stays while a shard may have it; leave it out",
        ),
    ]
    checks += _of_block("target", target.properties, [("location", target.location)])
    for pattern, options in tables.options.items():
        keys = [
            ("location", options.location),
            ("partition_by", options.partition_by),
            ("sort_by", options.sort_by),
            ("history", options.history not in {None, "none"}),
        ]
        checks += _of_block(f"tables.options.{pattern}", options.properties, keys)
    return [(key, reason) for applies, key, reason in checks if applies]


def _of_block(
    where: str, properties: Mapping[str, str], keys: Sequence[tuple[str, object]]
) -> list[tuple[bool, str, str]]:
    """The checks of a block that can be there for one table: whether it has a key, the key, and the reason."""
    version = properties.get(FORMAT_VERSION, "2") != "2"
    checks = [(version, f"{where}.properties: {FORMAT_VERSION}", "ids of rows would not be unique")]
    return checks + [(bool(value), f"{where}.{key}", "leave it out") for key, value in keys]
