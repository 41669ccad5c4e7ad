"""The form that a Hudi table must have so that lakeingest itself can write to it: properties, and no incomplete write.

Source: Hudi's technical specification for version 9 of a table, "Table properties" and "Timeline".
"""

import re
import zlib
from collections.abc import Mapping, Sequence

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.timeline import timeline

PROPERTIES = ".hoodie/hoodie.properties"
PARTITION_METADATA = ".hoodie_partition_metadata"  # a folder with data files has it
_CHECKSUM = ".hoodie/.hoodie.properties.crc"  # Hadoop writes a checksum beside each file on a disk
_REQUIRED: Mapping[str, str] = {  # with other values, a commit would have to write more files, or other ones
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
}
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_EXTRACTOR = "hoodie.table.partition_extractor_class"
# A table that names indexes in these properties is not of the form, because our commits do not update indexes
_INDEXES = ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight")
_OF_NEW_TABLES: Mapping[str, str] = {  # further properties of the tables that lakeingest makes
    "hoodie.archivelog.folder": "history",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.table.format": "native",
    "hoodie.table.initial.version": "9",
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.timeline.history.path": "history",
}
_RECORD_KEY = "hoodie.table.recordkey.fields"
_KNOWN = {"commit", "clean", "rollback", "savepoint", "restore"}  # actions that do not replace file groups


class Unfit(Exception):
    """lakeingest cannot write this commit as Hudi would write it, so Hudi has to write it."""


def record_key_of(folder: File, *, divided: bool = False) -> tuple[str, ...]:
    """The columns of the record key. `divided`: whether the table must have partitions, or must have none.

    Raises Unfit if the table does not have the form to which lakeingest can write.
    """
    properties = _properties(folder)
    has_indexes = any(map(properties.get, _INDEXES))
    has_form = has_known_form(folder) and has_partitions(folder) == divided
    if not has_form or has_indexes or not _has_only_completed_writes(folder):
        raise Unfit
    return tuple(properties.get(_RECORD_KEY, "").split(","))


def has_known_form(folder: File) -> bool:
    """Whether the table has the properties that lakeingest gives a table. Properties of indexes are not looked at."""
    properties = _properties(folder)
    return all(properties.get(name) == value for name, value in _REQUIRED.items()) and (
        properties.get(_PARTITION_FIELDS) in {"", PARTITION}  # '': no partitions
    )


def has_partitions(folder: File) -> bool:
    """Whether Hudi knows our column of partitions as the partition of the table."""
    return _properties(folder).get(_PARTITION_FIELDS) == PARTITION


def extractor_of(*, divided: bool) -> str:
    """Hudi's class that makes the value of the partition column from a folder's name."""
    return "SinglePartPartitionValueExtractor" if divided else "MultiPartKeysValueExtractor"


def make_partition(folder: File, partition: str, instant: str) -> None:
    """Make the folder of a partition, if it is missing. `instant` is the commit that writes to the partition first."""
    (folder / partition).make_folder()
    described = folder / partition / PARTITION_METADATA
    if not described.exists():
        described.put(f"commitTime={instant}\npartitionDepth=1\n".encode())


def declare_record_key(folder: File, record_key: Sequence[str]) -> None:
    """Write into the table's properties that these columns are the record key."""
    old_text = (folder / PROPERTIES).read().decode()
    line = f"{_RECORD_KEY}={','.join(record_key)}"
    # a function, because `re.sub` would interpret a backslash in a text
    new_text = re.sub(rf"(?m)^{re.escape(_RECORD_KEY)}=.*$", lambda _: line, old_text)
    if new_text != old_text:
        (folder / _CHECKSUM).delete()  # before the properties: readers fail if a checksum does not fit the contents
        (folder / PROPERTIES).put(new_text.encode())


def remove_indexes(folder: File) -> None:
    """Remove the metadata table, an index of the table's files, if a write of someone else has made one.

    The index must go, because it names files that will be deleted.
    """
    # Step 1: remove the index from the properties. Readers then list the files, and do not look for the index
    old_text = (folder / PROPERTIES).read().decode()
    names = "|".join(map(re.escape, _INDEXES))
    new_text = re.sub(rf"(?m)^({names})=.*\n?", "", old_text)
    if new_text != old_text:
        (folder / _CHECKSUM).delete()  # before the properties: readers fail if a checksum does not fit the contents
        (folder / PROPERTIES).put(new_text.encode())
    # Step 2: delete the index
    files.delete_all([folder / ".hoodie" / "metadata", *(folder / ".hoodie" / "metadata").tree()])


def make_table(folder: File, name: str, record_key: Sequence[str], *, divided: bool) -> None:
    """Make a Hudi table without commits in the folder. `divided`: it has partitions."""
    generator = "NON_PARTITION"
    if divided:
        generator = "COMPLEX" if len(record_key) > 1 else "SIMPLE"
    checksum = zlib.crc32(f".{name}".encode())  # of `<database>.<table>`; a table in a folder has no database
    properties = {
        **_REQUIRED,
        **_OF_NEW_TABLES,
        "hoodie.table.name": name,
        "hoodie.table.checksum": str(checksum),
        _PARTITION_FIELDS: PARTITION if divided else "",
        _EXTRACTOR: f"org.apache.hudi.hive.{extractor_of(divided=divided)}",
        "hoodie.table.keygenerator.type": generator,
        _RECORD_KEY: ",".join(record_key),
    }
    lines = [f"{key}={_escaped(value)}" for key, value in sorted(properties.items())]
    (folder / ".hoodie" / "timeline" / "history").make_folder()
    if not divided:
        (folder / PARTITION_METADATA).write(b"partitionDepth=0\n")
    (folder / PROPERTIES).put("\n".join([*lines, ""]).encode())  # last: with its properties, the folder is a table


def _properties(folder: File) -> dict[str, str]:
    """The table's properties. Values keep the escapes that they have in the file."""
    lines = (folder / PROPERTIES).read().decode().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _escaped(value: str) -> str:
    """A value with the escapes of a file of Java properties."""
    with_backslashes = re.sub(r"([\\:=#!])", r"\\\1", value)
    return re.sub(r"[^ -~]", _utf16_escapes, with_backslashes)


def _utf16_escapes(match: re.Match[str]) -> str:
    """The escapes of the matched character in Java: one for each 16 bits of its UTF-16."""
    return re.sub("(....)", r"\\u\1", match[0].encode("utf-16-be").hex().upper())


def _has_only_completed_writes(folder: File) -> bool:
    """Whether each write of the timeline is completed, and is _KNOWN not to replace file groups.

    Incomplete cleanings do not count.
    """
    begun, completed = set(), set()  # the instants of writes; each of `begun` must be in `completed`
    for file in timeline(folder, "*.*"):
        times, _, kind = file.name.partition(".")  # times: `<begun>_<completed>`, or `<begun>` of an incomplete write
        if "_" in times and kind in _KNOWN:
            completed.add(times.partition("_")[0])
        elif not kind.startswith("clean."):
            # a request; or a completed write that is not _KNOWN: `completed` lacks it, so the result is False
            begun.add(times.partition("_")[0])
    return begun <= completed
