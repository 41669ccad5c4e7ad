"""The form of a Hudi table that lakeingest itself writes to: its properties, and a timeline without unfinished work.

Source: Hudi's technical specification for version 9 of a table, "Table properties" and "Timeline".
"""

import re
import zlib
from collections.abc import Mapping, Sequence

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.timeline import timeline

PROPERTIES = ".hoodie/hoodie.properties"
PARTITION = ".hoodie_partition_metadata"
_CHECKSUM = ".hoodie/.hoodie.properties.crc"  # Hadoop writes it on a disk
_DECISIVE: Mapping[str, str] = {  # with another value a commit would have to write more, or other files
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.partition.fields": "",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
}
_INDEXES = ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight")  # our commits update none
_OTHERS: Mapping[str, str] = {
    "hoodie.archivelog.folder": "history",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.table.format": "native",
    "hoodie.table.initial.version": "9",
    "hoodie.table.keygenerator.type": "NON_PARTITION",
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.table.partition_extractor_class": "org.apache.hudi.hive.MultiPartKeysValueExtractor",
    "hoodie.timeline.history.path": "history",
}
_RECORD_KEY = "hoodie.table.recordkey.fields"
_KNOWN = {"commit", "clean", "rollback", "savepoint", "restore"}


class Unfit(Exception):
    """lakeingest cannot write this commit as Hudi would."""


def record_key_of(folder: File) -> tuple[str, ...]:
    """The columns of the record key. Raises Unfit where the table has another form, or a write is under way."""
    properties = _properties(folder)
    is_ours = all(properties.get(name) == value for name, value in _DECISIVE.items())
    if not is_ours or any(map(properties.get, _INDEXES)) or not _is_quiet(folder):
        raise Unfit
    return tuple(properties.get(_RECORD_KEY, "").split(","))


def declare_record_key(folder: File, record_key: Sequence[str]) -> None:
    """Name these columns as the record key in the table's properties."""
    old_text = (folder / PROPERTIES).read().decode()
    line = f"{_RECORD_KEY}={','.join(record_key)}"
    new_text = re.sub(rf"(?m)^{re.escape(_RECORD_KEY)}=.*$", lambda _: line, old_text)
    if new_text != old_text:
        (folder / _CHECKSUM).delete()  # first: readers fail if the checksum does not fit the contents
        (folder / PROPERTIES).put(new_text.encode())


def forget_indexes(folder: File) -> None:
    """Remove the index of files that someone else's write has made: it names files that are to be deleted."""
    old_text = (folder / PROPERTIES).read().decode()
    names = "|".join(map(re.escape, _INDEXES))
    new_text = re.sub(rf"(?m)^({names})=.*\n?", "", old_text)
    if new_text != old_text:  # the properties first: without an index, readers list the files
        (folder / _CHECKSUM).delete()
        (folder / PROPERTIES).put(new_text.encode())
    files.delete_all([folder / ".hoodie" / "metadata", *(folder / ".hoodie" / "metadata").tree()])


def write_form(folder: File, name: str, record_key: Sequence[str]) -> None:
    """Make the folder a table of this name, without commits."""
    checksum = zlib.crc32(f".{name}".encode())  # of database and name; a table in a folder has no database
    own = {"hoodie.table.name": name, "hoodie.table.checksum": str(checksum), _RECORD_KEY: ",".join(record_key)}
    lines = [f"{key}={_escaped(value)}" for key, value in sorted({**_DECISIVE, **_OTHERS, **own}.items())]
    (folder / ".hoodie" / "timeline" / "history").make_folder()
    (folder / PARTITION).write(b"partitionDepth=0\n")
    (folder / PROPERTIES).put("\n".join([*lines, ""]).encode())


def _properties(folder: File) -> dict[str, str]:
    """The properties of the table. Escapes in names and values stay as they are."""
    lines = (folder / PROPERTIES).read().decode().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _escaped(value: str) -> str:
    """A value as the format of Java properties writes it."""
    marked = re.sub(r"([\\:=#!])", r"\\\1", value)
    return re.sub(r"[^ -~]", _units, marked)


def _units(match: re.Match[str]) -> str:
    return re.sub("(....)", r"\\u\1", match[0].encode("utf-16-be").hex().upper())


def _is_quiet(folder: File) -> bool:
    """Whether all begun writes were completed, and none replaces file groups. Cleanings may be under way."""
    begun, done = set(), set()
    for file in timeline(folder, "*.*"):
        times, _, kind = file.name.partition(".")
        if "_" in times and kind in _KNOWN:
            done.add(times.partition("_")[0])
        elif not kind.startswith("clean."):
            begun.add(times.partition("_")[0])
    return begun <= done
