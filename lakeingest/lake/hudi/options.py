"""The settings of writes by Hudi, the number of buckets of a new table, and the properties of each publish."""

import json
import math
from collections.abc import Mapping

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.hudi.timeline import BUCKETS, KEY, PARTITIONS, PREFIX, VERSION, Instant
from lakeingest.lake.marks import OWNER, progress_marks
from lakeingest.lake.staged.staging import StagingCommit

RECORD_KEY_COLUMNS = "lakeingest.record_key"  # the property with the columns of the record key
_BUCKETS_MIN = 4
_SLACK = 4  # at least so many commits more than the retained ones are in the timeline before Hudi archives
# A table has `sqrt(bytes) / _BALANCE` buckets. A merge of few rows then takes about as long to rewrite its files as to
# look at all buckets.
_BALANCE = 64
OPTIONS = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.index.type": "BUCKET",  # a key is looked up in one file only
    "hoodie.parquet.bloom.filter.enabled": "false",  # 430 KB in each file, which only other kinds of index use
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",  # a bulk insert always writes a bloom filter, so the smallest one
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.metadata.enable": "false",  # the metadata table would list the table's files; lakeingest lists the folder
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.table.timeline.timezone": "UTC",
    # Hudi stores the options with this prefix in the metadata of the commit
    "hoodie.datasource.write.commitmeta.key.prefix": f"{PREFIX}lakeingest.",
}


def buckets_for(size: int, partitions: int = 1) -> str:
    """The number of buckets of a new table, as a text. It never changes. `size`: how many bytes the staged files have.

    In a table with several `partitions`, the result is the number of buckets in each partition. All partitions together
    have about as many files as a table without partitions.

    Each bucket has one file. A merge rewrites the files with its keys, and has a small cost for each other file. So the
    number and the size of the files both grow with the square root of `size`: 100 MB are about 160 files of 0.6 MB, and
    10 GB are about 1,600 files of 6 MB.
    """
    buckets = max(_BUCKETS_MIN, math.isqrt(size) // _BALANCE)
    return str(max(1, round(buckets / partitions)))


def publish_properties(
    table: TableId, last: StagingCommit, published: Instant | None, buckets: str, properties: Mapping[str, str]
) -> dict[str, str]:
    """All properties of a publish that makes the `last` commit of staging visible.

    They include `properties`, and repeat the record key that the `published` commit names. `published` is None before
    the first publish.
    """
    all_properties = {
        OWNER: str(table),
        **progress_marks(last.progress, None if published is None else published.version),
        VERSION: str(last.version),
        KEY: json.dumps(last.key),
        BUCKETS: buckets,
        **({PARTITIONS: json.dumps(last.partitions)} if last.partitions else {}),
        **properties,
    }
    if published is not None and RECORD_KEY_COLUMNS in published.properties:
        all_properties[RECORD_KEY_COLUMNS] = published.properties[RECORD_KEY_COLUMNS]
    return {PREFIX + name: value for name, value in all_properties.items()}


def write_options(buckets: str, retained: int, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a write by Hudi. The commit gets the `properties`.

    `retained` is the number of commits that stay in the timeline. Hudi archives older commits, and does not delete
    their files, because `cleaning` deletes them.
    """
    return {
        **OPTIONS,
        "hoodie.bucket.index.num.buckets": buckets,
        "hoodie.clean.automatic": "false",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": str(retained),
        "hoodie.keep.min.commits": str(retained + 1),  # Hudi demands a larger number than that of retained commits
        "hoodie.keep.max.commits": str(most_commits(retained)),
        **properties,
    }


def most_commits(retained: int) -> int:
    """The number of commits in the timeline at which Hudi archives the oldest commits. `retained` commits stay."""
    return retained + max(_SLACK, retained)
