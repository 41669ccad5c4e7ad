"""The operations on files of the state: the same in a folder of this machine, in memory, and in S3."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.config.stores import store_of
from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import StorageAway, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.bucket import Bucket
from lakeingest.files.file import Draft, File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from tests.servers.stores import forget_kept, in_memory, on_disk, stored_in

WRITERS = 4


def names(found: list[File]) -> list[str]:
    """The names of files."""
    return [file.name for file in found]


def test_a_name_has_parts(any_folder: File) -> None:
    """They are those of a path; two values of one name are one key."""
    file = any_folder / "a" / "b.c.json"
    assert (file.name, file.stem, file.suffix, file.parent.name) == ("b.c.json", "b.c", ".json", "a")
    assert file.with_suffix(".html").name == "b.c.html"
    assert str(file) == f"{any_folder}/a/b.c.json"
    assert {file: 1}[any_folder / "a/b.c.json"] == 1
    assert min([any_folder / "b", any_folder / "a"]) == any_folder / "a"


def test_a_document_is_made_once(any_folder: File) -> None:
    """The second one is refused, and the first stays. Who reads it gets what was given."""
    file = any_folder / "one.json"
    assert not file.exists()
    assert file.create({"by": 1})
    assert not file.create({"by": 2})
    assert file.exists()
    assert files.document(file) == {"by": 1}
    file.put_document({"by": 3})
    assert files.document(file) == {"by": 3}
    file.delete()
    file.delete()
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        files.document(file)


def test_of_writers_at_once_one_makes_a_document(any_folder: File) -> None:
    """For each number one writer made the file, which has its document. All documents may be equal."""
    for number in range(20):
        file = any_folder / f"{number}.json"
        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(lambda _, file=file: file.create({"equal": True}), range(WRITERS)))
        assert sum(won) == 1


def test_a_file_is_made_once_with_its_contents(any_folder: File) -> None:
    """Another one with the same contents is the same file; one with others is refused. No other file is left."""
    file = any_folder / "a.parquet"
    assert file.create_from(b"one")
    assert file.create_from(b"one")
    assert not file.create_from(b"two")
    assert file.read() == b"one"
    assert names(any_folder.tree()) == ["a.parquet"]


def test_of_writers_at_once_one_makes_a_file(any_folder: File) -> None:
    """For each number one writer made the file, which has its contents."""
    for number in range(20):
        file = any_folder / f"{number}.parquet"
        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(lambda who, file=file: file.create_from(b"%d" % who), range(WRITERS)))
        assert [who for who, is_won in enumerate(won) if is_won] == [int(file.read())]


def test_of_writers_at_once_one_makes_an_empty_file(any_folder: File) -> None:
    """The others are told that it exists, though its contents are the same for all."""
    for number in range(20):
        file = any_folder / f"{number}.requested"
        with ThreadPoolExecutor(WRITERS) as pool:
            assert sorted(pool.map(lambda _, file=file: file.make(), range(WRITERS))) == [False] * 3 + [True]
        assert file.read() == b""


def test_of_writers_at_once_one_is_last(any_folder: File) -> None:
    """A document is one of those that were written, whole."""
    file = any_folder / "head.json"
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: file.put_document({"by": number, "text": "x" * 1000}), range(WRITERS)))
    assert files.document(file)["text"] == "x" * 1000


def test_files_are_listed_by_name(any_folder: File) -> None:
    """Sorted, with what a listing says of each; folders below count only where the pattern has them."""
    assert (any_folder / "none").listed("*") == []
    for name in ("b.json", "a.json", "a.txt", "000012-x", "in/c.json", "in/deep/d.json", "inner/e.json"):
        (any_folder / name).parent.make_folder()
        (any_folder / name).write(name.encode())
    assert names(any_folder.listed("*.json")) == ["a.json", "b.json"]
    assert names(any_folder.listed("*/*.json")) == ["c.json", "e.json"]
    assert names(any_folder.listed("000012-*")) == ["000012-x"]
    assert names((any_folder / "in").listed("*.json")) == ["c.json"]
    assert files.read_all(any_folder.listed("*.json")) == [b"a.json", b"b.json"]
    [a, _] = any_folder.listed("*.json")
    assert (a.size(), a) == (6, any_folder / "a.json")


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    """Its files are unknown. `glob` of Python leaves them out."""
    (tmp_path / "folder").write_text("")
    for ask in (lambda folder: folder.listed("*"), lambda folder: folder.listed("*/*.json"), Local.subfolders):
        with pytest.raises(NotADirectoryError):
            ask(Local(tmp_path / "folder"))


def test_a_file_has_a_version_a_size_and_a_time(any_folder: File) -> None:
    """The version is another one after each replacement, also by equal contents."""
    file = any_folder / "a.json"
    for ask in (file.size, file.changed, file.version):
        with pytest.raises(FileNotFoundError):
            ask()
    file.put_document({"a": 1})
    first = file.version()
    assert file.version() == first
    assert abs(file.changed() - any_folder.now()) < 30
    file.put_document({"a": 1})
    assert file.version() != first
    assert names(any_folder.listed("*")) == ["a.json"]


def test_lines_of_a_log_are_added_at_once(any_folder: File) -> None:
    """None is lost, whoever adds them, and one writer's are in order."""
    log = any_folder / "audit.jsonl"
    assert log.lines() == []
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: log.append({"number": number}), range(12)))
    log.append({"number": 12})
    lines = [files.parsed(line)["number"] for line in log.lines()]
    assert sorted(lines) == list(range(13))
    assert lines[-1] == 12


def test_a_file_gets_another_name(any_folder: File) -> None:
    """It has what it had, and replaces what had the name; FileNotFoundError where it is not there."""
    (any_folder / "a.json").write(b"1")
    (any_folder / "b.json").write(b"2")
    (any_folder / "a.json").move_to(any_folder / "b.json")
    assert ((any_folder / "b.json").read(), names(any_folder.listed("*"))) == (b"1", ["b.json"])
    with pytest.raises(FileNotFoundError):
        (any_folder / "a.json").move_to(any_folder / "b.json")


@pytest.mark.parametrize("rows", [10, 400_000])
def test_a_data_file_is_written_and_read(any_folder: File, rows: int) -> None:
    """Small or large: whole, by columns and by row groups, and its metadata; nothing is left on the way."""
    table = pa.table({"id": range(rows), "v": [f"row {number}" for number in range(rows)]})
    file = any_folder / f"data-{rows}.parquet"
    with files.written(file) as path:
        pq.write_table(table, path, row_group_size=100_000)
    assert isinstance(any_folder, Path) or not path.exists()
    forget_kept()
    assert files.parquet_metadata(file).num_rows == rows
    with files.parquet(file) as opened:
        assert opened.read() == table
        assert opened.read_row_group(0, ["id"]).num_rows == min(rows, 100_000)
    with file.open_lasting() as lasting:
        assert files.total([file, any_folder / "none"]) == file.size()
        file.delete()
        assert pq.read_table(lasting) == table
    with pytest.raises(FileNotFoundError):
        files.parquet(any_folder / "none.parquet")
    with pytest.raises(FileNotFoundError):
        files.parquet_metadata(any_folder / "none.parquet")


def test_a_data_file_that_fails_is_not_there(any_folder: File) -> None:
    """In a store nothing is made before it is whole."""
    file = any_folder / "data.parquet"
    with suppress(ValueError), files.written(file) as path:
        path.write_bytes(b"half")
        raise ValueError
    assert isinstance(any_folder, Path) == file.exists()
    draft = Draft.of(file)
    draft.drop()
    assert isinstance(any_folder, Path) == file.exists()


def test_old_files_are_swept(any_folder: File) -> None:
    """Those that are older than the age; how many files and bytes."""
    (any_folder / "a").write(b"123")
    assert files.sweep(any_folder.listed("*"), timedelta(hours=1)) == (0, 0)
    assert files.sweep(any_folder.listed("*"), timedelta(seconds=-5)) == (1, 3)
    assert any_folder.listed("*") == []


def test_a_folder_is_probed(any_folder: File) -> None:
    """The probe leaves nothing. Only a disk has a known amount of free space."""
    (any_folder / "new").probe()
    assert any_folder.listed("*") == any_folder.listed("*/*") == []
    assert ((any_folder / "new").free_bytes() is None) != isinstance(any_folder, Path)


def test_what_travels_to_an_executor_shows_no_secret() -> None:
    """The name, and what an error says of it, are without the credentials that are pickled with it."""
    storage = Storage.model_validate(
        {"endpoint": "http://127.0.0.1:9", "path_style": True, "properties": {"s3.secret-access-key": "hidden"}}
    )
    file = Stored.of(Place.of("s3://lake/state"), storage) / "a.json"
    assert "hidden" not in f"{file} {file!r}"
    assert pickle.loads(pickle.dumps(file)) == file  # noqa: S301 - our own
    assert dict(file.bucket.options)["secret_access_key"] == "hidden"


def test_an_endpoint_has_the_bucket_in_its_name_unless_it_is_in_the_path() -> None:
    """As PyIceberg and Spark reach the same store."""
    obstore = store_of("s3").obstore
    by_host = Storage.model_validate({"endpoint": "https://s3.example.com", "region": "eu"})
    assert obstore(by_host, "lake") == {
        "endpoint": "https://lake.s3.example.com",
        "region": "eu",
        "virtual_hosted_style_request": "true",
    }
    by_path = Storage.model_validate({"endpoint": "https://s3.example.com", "path_style": True})
    assert obstore(by_path, "lake") == {"endpoint": "https://s3.example.com"}
    assert obstore(Storage(), "lake") == {}


@pytest.mark.long("takes seconds")
def test_a_store_that_is_away_or_refuses_is_named(s3: LocalS3) -> None:
    """75 and the same command again, or a person has to act: wrong keys, no such bucket."""
    there = stored_in(s3)
    options = dict(there.bucket.options)
    away = Stored(Bucket("s3://lake", tuple({**options, "endpoint": "http://127.0.0.1:9"}.items())), "state")
    wrong = Stored(Bucket("s3://lake", tuple({**options, "secret_access_key": "wrong"}.items())), "state")
    lacking = Stored(Bucket("s3://other", there.bucket.options), "state")
    with pytest.raises(StorageAway, match=r"s3://lake/state/a.*does not answer") as error:
        (away / "a").read()
    assert "Debug" not in str(error.value)
    for folder in (wrong, lacking):
        with pytest.raises(StorageFailed):
            (folder / "a.json").create({})
        with pytest.raises(StorageFailed):
            (folder / "a").write(b"")


@pytest.mark.long("takes seconds")
def test_a_lost_answer_is_looked_up(s3: LocalS3, losing_endpoint: str) -> None:
    """Of 40 numbers, which four writers try while 30 % of the answers are lost, each is won once, by whom it names."""
    behind, there = stored_in(s3, losing_endpoint), stored_in(s3)
    there = Stored(there.bucket, behind.key)

    def write(who: int) -> list[int]:
        return [number for number in range(40) if (behind / f"{number}.json").create({"who": who})]

    with ThreadPoolExecutor(WRITERS) as pool:
        won = list(pool.map(write, range(WRITERS)))
    assert sorted(number for numbers in won for number in numbers) == list(range(40))
    for who, numbers in enumerate(won):
        assert all(files.document(there / f"{number}.json")["who"] == who for number in numbers)
    for number in range(20):
        assert (behind / f"{number}.parquet").create_from(b"%d" % number)
        (behind / "head.json").put_document({"at": number})
        assert files.document(there / "head.json") == {"at": number}


def test_a_document_that_was_replaced_meanwhile_is_not(s3: LocalS3) -> None:
    """Who saw an older version, or nothing, changes nothing; also of equal contents."""
    for file in (stored_in(s3) / "head.json", in_memory() / "head.json"):
        first = file.put_if({"at": 1}, None)
        assert first is not None
        assert file.put_if({"at": 1}, None) is None
        second = file.put_if({"at": 1}, first)
        assert second is not None
        assert file.put_if({"at": 3}, first) is None
        assert file.look() is not None
        assert file.put_if({"at": 3}, second) is not None
        file.delete()
        assert file.put_if({"at": 4}, second) is None


def test_processes_need_nothing_of_each_other(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is forked before any use, as Spark's workers are, has its own client; keys may be in the environment."""
    folder = stored_in(s3)
    (folder / "a").write(b"1")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    keys = {"endpoint": s3.endpoint, "path_style": True, "region": "us-east-1"}
    bare = Stored.of(Place.of(f"s3://{s3.bucket}/{folder.key}"), Storage.model_validate(keys))
    assert (bare / "a").read() == b"1"
    code = f"""
import os, pickle
folder = pickle.loads({pickle.dumps(folder)!r})
child = os.fork()
if child == 0:
    (folder / "b").write(b"2")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
(folder / "b").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
    assert (folder / "b").read() == b"2"


def test_a_local_document_leaves_no_rest(tmp_path: Local) -> None:
    """Not even where it was refused."""
    (tmp_path / "a.json").create({})
    (tmp_path / "a.json").create({})
    assert [on_disk(file).name for file in tmp_path.listed("*")] == ["a.json"]


def test_a_folder_is_removed_with_all_that_is_below_it(any_folder: File) -> None:
    """Its files at any depth are found; those of its neighbours, whose names begin alike, are not."""
    for name in ("a/1.json", "a/b/2.json", "a/b/c/3.json", "ab/4.json"):
        (any_folder / name).parent.make_folder()
        (any_folder / name).write(b"{}")
    assert [str(file).removeprefix(f"{any_folder}/") for file in (any_folder / "a").tree()] == [
        "a/1.json",
        "a/b/2.json",
        "a/b/c/3.json",
    ]
    assert any_folder.subfolders() == ["a", "ab"]
    assert (any_folder / "none").subfolders() == []
    assert (any_folder / "a").is_there()
    files.delete_all((any_folder / "a").tree())
    assert (any_folder / "a").tree() == []
    assert [file.name for file in any_folder.tree()] == ["4.json"]
    (any_folder / "ab/4.json").copy_to(any_folder / "5.json")
    assert (any_folder / "5.json").read() == b"{}"
