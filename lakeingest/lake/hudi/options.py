"""The settings of Hudi's writes, the number of buckets of a new table, and the properties that store them."""

import json
import math
from collections.abc import Mapping

from lakeingest.core.schema import TableId
from lakeingest.lake.hudi.timeline import BUCKETS, KEY, PREFIX, VERSION, Instant
from lakeingest.lake.marks import OWNER, progress_marks
from lakeingest.lake.staged.staging import StagingCommit

RECORD_KEY_MARK = "lakeingest.record_key"  # the columns of the record key, set by a commit that writes all rows
_BUCKETS_MIN = 4
_SLACK = 4  # a short history may be longer by so many commits
_BALANCE = 64  # with the square root, a small merge takes as long to rewrite files as to look at all buckets
OPTIONS = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.index.type": "BUCKET",  # a key is looked up in one file only
    "hoodie.parquet.bloom.filter.enabled": "false",  # 430 KB in each file, which only other kinds of index use
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",  # a bulk insert writes a filter in any case
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.metadata.enable": "false",  # an index of the table's files, which a local listing does not need
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.datasource.write.commitmeta.key.prefix": f"{PREFIX}lakeingest.",
}


def buckets_for(size: int) -> str:
    """The number of buckets of a table with so many bytes of staged files. It never changes.

    A bucket is a file. A merge rewrites the files that have one of its keys, and costs a little for each other file. So
    number and size of files grow alike: 160 files of 0.6 MB, or 1,600 of 6 MB.
    """
    return str(max(_BUCKETS_MIN, math.isqrt(size) // _BALANCE))


def marks_of(
    table: TableId, last: StagingCommit, published: Instant | None, buckets: str, properties: Mapping[str, str]
) -> dict[str, str]:
    """The properties of a publish that makes the `last` commit of staging visible; they include these `properties`."""
    marks = {
        OWNER: str(table),
        **progress_marks(last.progress, None if published is None else published.version),
        VERSION: str(last.version),
        KEY: json.dumps(last.key),
        BUCKETS: buckets,
        **properties,
    }
    if published is not None and RECORD_KEY_MARK in published.properties:
        marks[RECORD_KEY_MARK] = published.properties[RECORD_KEY_MARK]
    return {PREFIX + name: value for name, value in marks.items()}


def write_options(buckets: str, retained: int, marks: Mapping[str, str]) -> dict[str, str]:
    """The settings of a write by Hudi that retains `retained` commits, with these properties.

    Hudi archives older commits, and does not delete their files: `cleaning` does.
    """
    return {
        **OPTIONS,
        "hoodie.bucket.index.num.buckets": buckets,
        "hoodie.clean.automatic": "false",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": str(retained),
        "hoodie.keep.min.commits": str(retained + 1),  # in the timeline; older commits are archived
        "hoodie.keep.max.commits": str(most_commits(retained)),
        **marks,
    }


def most_commits(retained: int) -> int:
    """The number of commits in the timeline at which Hudi archives, if it retains `retained` of them."""
    return retained + max(_SLACK, retained)
