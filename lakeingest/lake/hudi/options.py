"""The settings of Hudi's writes, the number of buckets of a new table, and the properties that repeat them."""

import math

from lakeingest.lake.hudi.timeline import PREFIX

KEY = "lakeingest.key"
BUCKETS = "lakeingest.buckets"
_BUCKET_BYTES = 32 << 20  # of staged files: each bucket is a file, and a merge rewrites the files that it touches
_BUCKETS_MIN = 4
OPTIONS = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.index.type": "BUCKET",  # a key is looked up in one file only
    "hoodie.parquet.bloom.filter.enabled": "false",  # 430 KB in each file, which only other kinds of index use
    "hoodie.metadata.enable": "false",  # an index of the table's files, which a local listing does not need
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.datasource.write.commitmeta.key.prefix": f"{PREFIX}lakeingest.",
}


def buckets_for(size: int) -> str:
    """The number of buckets of a table with so many bytes of staged files."""
    return str(max(_BUCKETS_MIN, math.ceil(size / _BUCKET_BYTES)))
