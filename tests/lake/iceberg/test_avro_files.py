"""Our manifests and lists of manifests are, byte for byte, those of PyIceberg, and other readers of Avro read them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lakeingest.lake.iceberg.files.kept_files import KeptManifest, manifests_read_anew
from lakeingest.lake.iceberg.storage.avro_files import AvroOutput, Form
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.storage.entry_fields import THIRD, with_all_fields
from lakeingest.lake.iceberg.storage.manifest_files import WRITERS, write_list

SNAPSHOT, NUMBER = 7, 3
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "month", IntegerType()),
)
PLAIN = PartitionSpec()
PARTED = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(3, 1001, IdentityTransform(), "month")
)
IO = DurableFileIO()
CODECS = cast("Sequence[AvroCompressionCodec]", ("deflate", "null", "zstandard"))


def file(number: int, partition: Record, content: DataFileContent = DataFileContent.DATA) -> DataFile:
    """A file in a manifest, with statistics."""
    made = DataFile.from_args(
        content=content,
        file_path=f"file:///lake/data/ü {number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=10 + number,
        file_size_in_bytes=1_000 + number,
        column_sizes={1: 40, 2: 50},
        value_counts={1: 10, 2: 10},
        null_value_counts={1: 0, 2: 3},
        nan_value_counts={},
        lower_bounds={1: b"\x01" + bytes(7), 2: "ä".encode()},
        upper_bounds={1: b"\xff" * 8, 2: b"z"},
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=0,
    )
    made.spec_id = 0
    return made


def entries(spec: PartitionSpec, content: DataFileContent = DataFileContent.DATA) -> list[ManifestEntry]:
    """An entry of each status."""
    partitions = [Record("north", 1), Record(None, 2), Record("süd", None)] if spec is PARTED else [Record()] * 3
    statuses = (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
    numbers = (None, 2, 1)
    return [
        ManifestEntry.from_args(
            status=status,
            snapshot_id=SNAPSHOT,
            sequence_number=number,
            file_sequence_number=number,
            data_file=file(place, partitions[place], content),
        )
        for place, (status, number) in enumerate(zip(statuses, numbers, strict=True))
    ]


def contents(path: Path) -> bytes:
    """The bytes of a file of Avro, but for the mark between its blocks, which is random: it is the header's end."""
    found = path.read_bytes()
    return found.replace(found[-16:], b"<mark>")


def output(path: Path) -> OutputFile:
    """A file to write."""
    return IO.new_output(path.as_uri())


Write = Callable[[Path], object]


def assert_same(folder: Path, ours: Write, theirs: Write) -> Path:
    """Both write the same file. Returns the path of ours."""
    ours(folder / "ours.avro")
    theirs(folder / "theirs.avro")
    assert contents(folder / "ours.avro") == contents(folder / "theirs.avro")
    return folder / "ours.avro"


def written(writer: ManifestWriterV2, listed: Sequence[ManifestEntry]) -> ManifestFile:
    """Write a manifest. Returns how a list names it."""
    with writer:
        for entry in listed:
            writer.add_entry(entry)
    return writer.to_manifest_file()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("spec", [PLAIN, PARTED], ids=["plain", "parted"])
def test_a_manifest_of_version_2_is_the_one_of_pyiceberg(
    tmp_path: Path, spec: PartitionSpec, codec: AvroCompressionCodec
) -> None:
    """Also the second one of these partitions, whose schema is known already."""
    for folder in (tmp_path / "first", tmp_path / "second"):
        listed: dict[str, ManifestFile] = {}

        def ours(path: Path, listed: dict[str, ManifestFile] = listed) -> None:
            kind = WRITERS[2, ManifestContent.DATA]
            listed["ours"] = written(kind(spec, SCHEMA, output(path), SNAPSHOT, codec), entries(spec))

        def theirs(path: Path, listed: dict[str, ManifestFile] = listed) -> None:
            writer = write_manifest(2, spec, SCHEMA, output(path), SNAPSHOT, codec)
            assert type(writer) is ManifestWriterV2
            listed["theirs"] = written(writer, entries(spec))

        path = assert_same(folder, ours, theirs)
        assert listed["ours"].manifest_length == listed["theirs"].manifest_length == path.stat().st_size
        assert values(listed["ours"])[1:] == values(listed["theirs"])[1:]  # the first one is the path


@pytest.mark.parametrize("content", [ManifestContent.DATA, ManifestContent.DELETES])
@pytest.mark.parametrize("version", [2, THIRD])
def test_a_manifest_is_read_back(tmp_path: Path, version: Any, content: ManifestContent) -> None:
    """By our reader, by PyIceberg's and by that of fastavro, which PyIceberg does not use."""
    of_files = DataFileContent.DATA if content is ManifestContent.DATA else DataFileContent.POSITION_DELETES
    listed = [changed(entry) for entry in entries(PARTED, of_files)] if version == THIRD else entries(PARTED, of_files)
    path = tmp_path / "manifest.avro"
    manifest = written(WRITERS[version, content](PARTED, SCHEMA, output(path), SNAPSHOT, "deflate"), listed)
    manifest.sequence_number = manifest.min_sequence_number = NUMBER
    kept = KeptManifest(*values(manifest))
    for read in (kept.fetch_manifest_entry(IO, discard_deleted=False), manifest.fetch_manifest_entry(IO, False)):
        assert [entry.status for entry in read] == [entry.status for entry in listed]
        assert [entry.sequence_number for entry in read] == [NUMBER, 2, 1]
        assert [entry.data_file.partition for entry in read] == [entry.data_file.partition for entry in listed]
        assert [entry.data_file.content for entry in read] == [of_files] * 3
        assert [entry.data_file.lower_bounds for entry in read] == [entry.data_file.lower_bounds for entry in listed]
    with path.open("rb") as opened:
        reader = fastavro.reader(opened)
        records: list[Any] = list(reader)
    assert reader.metadata["format-version"] == str(version)
    assert [record["data_file"]["file_path"] for record in records] == [entry.data_file.file_path for entry in listed]
    assert [record["data_file"]["partition"]["region"] for record in records] == ["north", None, "süd"]


def changed(entry: ManifestEntry) -> ManifestEntry:
    """The entry with the fields of version 3."""
    entry.data_file = with_all_fields(entry.data_file)
    return entry


def values(manifest: ManifestFile) -> list[Any]:
    """The values of all fields."""
    return [manifest[place] for place in range(len(manifest))]


def manifests() -> Iterator[ManifestFile]:
    """A manifest of this commit, and one of an earlier commit."""
    for place, number in enumerate((-1, 2)):
        yield ManifestFile.from_args(
            manifest_path=f"file:///lake/metadata/{place}.avro",
            manifest_length=100 + place,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=number,
            min_sequence_number=number,
            added_snapshot_id=SNAPSHOT if number < 0 else 1,
            added_files_count=1,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=10,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=[],
            key_metadata=None,
        )


def snapshot(path: Path, first_row_id: int | None, parent: int | None = 1) -> Snapshot:
    """The snapshot whose list of manifests this file is."""
    return Snapshot.model_validate(
        {
            "snapshot-id": SNAPSHOT,
            "parent-snapshot-id": parent,
            "sequence-number": NUMBER,
            "manifest-list": path.as_uri(),
            "first-row-id": first_row_id,
        }
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("parent", [1, None])
def test_a_list_of_version_2_is_the_one_of_pyiceberg(
    tmp_path: Path, parent: int | None, codec: AvroCompressionCodec
) -> None:
    """With the numbers that a commit gives to its own manifests; it gives no ids to rows."""

    def theirs(path: Path) -> None:
        with write_manifest_list(2, output(path), SNAPSHOT, parent, NUMBER, codec) as writer:
            writer.add_manifests(list(manifests()))

    following = []
    path = assert_same(
        tmp_path,
        lambda path: following.append(
            write_list(output(path), snapshot(path, None, parent), tuple(manifests()), codec)
        ),
        theirs,
    )
    assert following == [0]
    read = manifests_read_anew(snapshot(path, None), IO)
    assert [(one.manifest_path[-6:], one.sequence_number) for one in read] == [("0.avro", NUMBER), ("1.avro", 2)]


def test_a_list_of_version_3_gives_ids_to_rows(tmp_path: Path) -> None:
    """Each manifest of data files without a first row id gets one."""
    path = tmp_path / "list.avro"
    assert write_list(output(path), snapshot(path, 100), tuple(manifests()), "deflate") == 120
    with path.open("rb") as opened:
        records: list[Any] = list(fastavro.reader(opened))
    assert [record["first_row_id"] for record in records] == [100, 110]


def test_a_manifest_of_another_commit_must_have_its_number(tmp_path: Path) -> None:
    """The number of the new commit would make its deletes reach rows that are newer than they are."""
    path = tmp_path / "list.avro"
    unnumbered = next(manifests())
    number_of = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[2].fields].index("added_snapshot_id")
    unnumbered[number_of] = 1
    with pytest.raises(ValueError, match="no sequence number"):
        write_list(output(path), snapshot(path, None), [unnumbered], "deflate")
    assert not path.exists()


def test_a_file_is_there_only_when_all_of_it_is_known(tmp_path: Path) -> None:
    """A record that cannot be written leaves no file."""
    path, schema = tmp_path / "list.avro", MANIFEST_LIST_FILE_SCHEMAS[2]
    with (
        pytest.raises(AttributeError),
        AvroOutput[ManifestFile](output(path), Form(schema, schema, "manifest_file"), {}) as writer,
    ):
        writer.write_block([cast("ManifestFile", Record(None))])
    assert not path.exists()


@pytest.mark.parametrize("cut", [0, 3, 40, -20, -1])
def test_a_damaged_file_is_an_error(tmp_path: Path, cut: int) -> None:
    """Also one that lacks its last byte: PyIceberg's decoder reads on beyond the end."""
    path = tmp_path / "list.avro"
    write_list(output(path), snapshot(path, None), tuple(manifests()), "deflate")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Exception):  # noqa: B017, PT011 - of any kind
        manifests_read_anew(snapshot(path, None), IO)


def test_files_of_other_schemas_are_told_apart(tmp_path: Path) -> None:
    """A list that lacks a field of ours is read by its own schema, before and after one that has all fields."""
    schema = MANIFEST_LIST_FILE_SCHEMAS[2]
    fewer = Schema(*(field for field in schema.fields if field.name != "key_metadata"))
    paths = [tmp_path / f"{place}.avro" for place in range(3)]
    for path, of_file in zip(paths, (schema, fewer, schema), strict=True):
        with AvroOutputFile[ManifestFile](
            output(path), of_file, "manifest_file", record_schema=schema, metadata={"avro.codec": "null"}
        ) as writer:
            writer.write_block([list(manifests())[1]])
    for path in paths:
        [ours] = manifests_read_anew(snapshot(path, None), IO)
        with AvroFile[ManifestFile](IO.new_input(path.as_uri()), schema, {-1: ManifestFile}) as reader:
            [theirs] = reader
        assert values(ours)[: len(values(theirs))][4:] == values(theirs)[4:]
        assert ours.manifest_path == theirs.manifest_path
