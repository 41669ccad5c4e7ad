"""Parts of a changelog as Parquet files: which rows a file has, and what is there after a process has died anywhere."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakeingest.commands.change_lines import positions
from lakeingest.commands.changelog_files import ChangelogFiles, Limits
from lakeingest.commands.changelog_folder import ChangelogFolder
from lakeingest.config import parse_config
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.log_columns import DDL_JSON
from lakeingest.core.tables.change import OP, POSITION
from lakeingest.errors import Retryable, StateUnreadable, UsageError
from lakeingest.files.file import File, document
from lakeingest.files.local import Local
from lakeingest.pipeline.changelog.reading import Changed, Part
from tests.commands.feeds import (
    AFTER,
    BEFORE,
    COPIED_AT,
    DELETE,
    INSERT,
    LOG,
    TABLE,
    WIDER,
    altered,
    changed,
    copied,
    truncated,
)
from tests.servers.engines import DUCKDB
from tests.servers.stores import killed_at, new_folder

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "changelog-as-files.md").read_text()
UPDATE = [(BEFORE, 1, "v1"), (AFTER, 1, "w1")]
PARTS: list[Part] = [
    *copied(7, batches=3),
    changed([(200, [(INSERT, 10, "a"), (INSERT, 11, "b")]), (300, UPDATE)]),
    altered(400),
    changed([(500, [(INSERT, 12, "c")])], WIDER),
    truncated(600),
    changed([(700, [(INSERT, 13, "d"), (DELETE, 13, "d")])], WIDER),
]
END = ReadTo(Place(1, 1, 900), log=LOG)


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest) -> File:
    """A new folder on this machine, and in a store."""
    return new_folder(request)


def files_of(place: File, limits: Limits, said: list[str] | None = None) -> ChangelogFiles:
    """A writer into a folder, as a new process makes it."""
    folder = ChangelogFolder(place / "orders", TABLE)
    folder.open()
    names = [] if said is None else said
    return ChangelogFiles(folder, LOG, limits, lambda: END, lambda file: names.append(file.name))


def write(place: File, limits: Limits, parts: list[Part] | None = None) -> list[str]:
    """Write the parts that come after the last file; the names of the new files."""
    said: list[str] = []
    files = files_of(place, limits, said)
    for part in after(PARTS if parts is None else parts, files.folder.read_to):
        files.add(part)
    files.close()
    return said


def after(parts: list[Part], read_to: ReadTo | None) -> Iterator[Part]:
    """The parts after a position: what a changelog gives. A copy is given as a whole."""
    for part in parts:
        is_read = [] if read_to is None else [ReadTo.parse(one).order <= read_to.order for one in positions(part, LOG)]
        if not any(is_read):
            yield part
        elif not all(is_read):
            assert isinstance(part, Changed)
            yield Changed(part.rows.slice(sum(is_read)), part.schema)


def rows_in(place: File) -> list[dict[str, Any]]:
    """The rows of all files, in the order of their names."""
    rows: list[dict[str, Any]] = []
    for file in (place / "orders").listed("*.parquet"):
        with pq.ParquetFile(file.source()) as opened:
            rows += opened.read().to_pylist()
    return rows


def seen(place: File) -> list[tuple[str, str, int | None]]:
    """The kind, the position and the key of each row."""
    return [(row[OP], row[POSITION], row["id"]) for row in rows_in(place)]


def expected(parts: list[Part]) -> list[str]:
    """The positions of all rows of parts."""
    return [one for part in parts for one in positions(part, LOG)]


def test_files_have_each_row_once_and_in_order(place: File) -> None:
    """A copy in files of its own, changes up to DDL, and what comes after it with the new columns."""
    said = write(place, Limits(rows=4))
    rows = rows_in(place)
    assert [row[POSITION] for row in rows] == expected(PARTS)
    assert [row[OP] for row in rows[7:]] == ["+I", "+I", "-U", "+U", "DDL", "+I", "TRUNCATE", "+I", "-D"]
    files = (place / "orders").listed("*.parquet")
    assert [file.name for file in files] == said
    found = [pq.read_table(file.source()) for file in files]
    assert [table.num_rows for table in found] == [4, 3, 2, 2, 3, 2]
    assert [table.column_names[-1] for table in found] == ["v", "v", "v", "v", "n", "n"]
    line = json.loads(rows[11][DDL_JSON])
    assert (line["columns"][2]["name"], line["columns"][2]["fill"]) == ("n", 5)
    metadata = [table.schema.metadata for table in found]
    assert [one[b"lakeingest.after"] for one in metadata[1:]] == [
        b"",
        *(one[b"lakeingest.until"] for one in metadata[1:-1]),
    ]
    assert {(one[b"lakeingest.table"], one[b"lakeingest.key"]) for one in metadata} == {(b"shop.orders", b'["id"]')}
    assert write(place, Limits()) == []


def after_deaths(place: File, rows: int) -> Iterator[tuple[int, File]]:
    """Each change of a name, by its number, and a folder into which a process has written that died there.

    The process of the last folder has ended by itself, because there were no more changes.
    """
    step, left = 0, [0]
    while left[0] == 0:
        here = place / str(step)
        with killed_at(step) as left:
            write(here, Limits(rows=rows))
        yield step, here
        step += 1


@pytest.mark.parametrize("place", ["folder", "memory", "s3"], indirect=True)
@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.long("one size in one place in turn", turn=("place", "rows"))
def test_a_process_that_dies_at_any_step_loses_and_doubles_nothing(place: File, rows: int) -> None:
    """At each change of a name; nobody sees a part of a copy that is not committed, and what is seen stays."""
    for step, here in after_deaths(place, rows):
        before = [position for _, position, _ in seen(here)]
        assert before == expected(PARTS)[: len(before)]
        write(here, Limits(rows=rows))
        assert [position for _, position, _ in seen(here)] == expected(PARTS), step
    assert step + 1 > 6


def test_a_file_that_has_waited_is_finished_at_the_end_of_a_transaction(place: File) -> None:
    """In the middle of changes without the last transaction, and at a pause with it."""
    files = files_of(place, Limits(seconds=0.05))
    files.add(changed([(200, [(INSERT, 1, "a")])]))
    assert seen(place) == []
    time.sleep(0.06)
    files.add(changed([(300, UPDATE)]))
    assert [key for _, _, key in seen(place)] == [1]
    files.pause()
    assert len(seen(place)) == 1
    time.sleep(0.06)
    files.pause()
    assert [op for op, _, _ in seen(place)] == ["+I", "-U", "+U"]


def test_half_an_update_is_not_written(place: File) -> None:
    """A process that ends between its rows leaves both to the next one."""
    files = files_of(place, Limits())
    files.add(changed([(200, [(INSERT, 9, "x"), (BEFORE, 1, "v1")])]))
    files.close()
    assert [op for op, _, _ in seen(place)] == ["+I"]


def test_a_copy_that_is_not_complete_is_given_up(place: File) -> None:
    """Its files are removed, and none of its rows is seen; changes after it, or another copy, are written."""
    for then in (changed([(200, UPDATE)]), copied(3, place=Place(1, 1, 150))[0]):
        here = place / type(then).__name__
        files = files_of(here, Limits(rows=2))
        for part in copied(6, batches=3)[:2]:
            files.add(part)
        assert seen(here) == []
        files.add(then)
        files.close()
        assert [position for _, position, _ in seen(here)] == positions(then, LOG)
        assert (here / "orders" / "_copies").listed("*/*.parquet") == []
    files = files_of(place / "ended", Limits(rows=2))
    files.add(copied(6, batches=3)[0])
    files.close()
    assert seen(place / "ended") == []


def test_progress_is_noted_while_nothing_changes(place: File) -> None:
    """At the second pause: what is stored at the first one is read then. A reader goes on from there."""
    write(place, Limits())
    files = files_of(place, Limits())
    files.pause()
    assert document(place / "orders" / "_progress.json")["read_to"] == expected(PARTS)[-1]
    files.pause()
    doc = document(place / "orders" / "_progress.json")
    assert (doc["read_to"], doc["table"]) == (str(END), "shop.orders")
    taken_away(place)
    folder = files_of(place, Limits()).folder
    assert folder.read_to == END
    folder.note(ReadTo(Place(1, 1, 50), log=LOG))
    assert folder.read_to == END


def test_progress_is_noted_after_each_file(place: File) -> None:
    """Also of a table that is so busy that rows always wait."""
    files = files_of(place, Limits(rows=2))
    for number in range(4):
        files.add(changed([(200 + number, [(INSERT, number, "a")])]))
        files.pause()
    doc, last = document(place / "orders" / "_progress.json"), (place / "orders").listed("*.parquet")[-1]
    assert (doc["last_file"], doc["read_to"]) == (last.name, seen(place)[-1][1])
    assert [key for _, _, key in seen(place)] == [0, 1, 2]
    here = place / "copy"
    write(here, Limits(rows=2), [*copied(6, batches=3)])
    doc = document(here / "orders" / "_progress.json")
    assert doc["read_to"] == f"{COPIED_AT}.rows.end-{LOG}"
    assert doc["last_file"] == (here / "orders").listed("*.parquet")[-1].name


def test_an_old_note_does_not_count_beside_newer_files(place: File) -> None:
    """A slow process may write one late."""
    write(place, Limits(rows=4), PARTS[:3])
    slow = files_of(place, Limits())
    write(place, Limits(rows=4))
    slow.note(END)
    noted = document(place / "orders" / "_progress.json")
    assert noted["last_file"] < (place / "orders").listed("*.parquet")[-1].name
    assert str(files_of(place, Limits()).folder.read_to) == expected(PARTS)[-1]
    assert write(place, Limits()) == []


def taken_away(place: File) -> list[str]:
    """Move all files away but the last one, as the page allows readers; the positions of their rows."""
    taken = []
    for file in (place / "orders").listed("*.parquet")[:-1]:
        with pq.ParquetFile(file.source()) as opened:
            taken += opened.read()[POSITION].to_pylist()
        file.delete()
    return taken


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.long("one size and place in turn", turn=("place", "rows"))
def test_readers_move_files_away_whoever_dies(place: File, rows: int) -> None:
    """At each change of a name, also between the two steps of a move in a store: no row is written again."""
    for step, here in after_deaths(place, rows):
        taken = taken_away(here)
        if step % 2:
            (here / "orders" / "_progress.json").delete()
        write(here, Limits(rows=rows))
        taken += taken_away(here)
        assert [*taken, *(position for _, position, _ in seen(here))] == expected(PARTS), step
    assert step + 1 > 12


def test_a_last_file_that_is_gone_is_named(place: File) -> None:
    """By the note, or by the document of the copy; no row is written before the file is back."""
    for parts in (PARTS[:3], PARTS):
        here = place / str(len(parts))
        write(here, Limits(rows=4), parts)
        last = (here / "orders").listed("*.parquet")[-1]
        contents = last.read()
        taken_away(here)
        last.delete()
        if len(parts) == 3:
            (here / "orders" / "_progress.json").delete()
        for _ in range(2):
            with pytest.raises(StateUnreadable, match=rf"{re.escape(last.name)} is gone"):
                write(here, Limits(rows=4))
        assert (here / "orders").listed("*.parquet") == []
        last.put(contents)
        write(here, Limits(rows=4))
        rest = [position for _, position, _ in seen(here)]
        assert rest == expected(PARTS)[-len(rest) :]


def aged(files: list[Local], days: float) -> None:
    """Let files be this old."""
    for file in files:
        file.set_changed(time.time() - days * 86_400)


def test_a_copy_of_more_than_a_day_stays_whole(tmp_path: Path) -> None:
    """A second process leaves what is still added to, and removes what nobody has added to for a day."""
    place = Local(tmp_path)
    copies = place / "orders" / "_copies"
    first = files_of(place, Limits(rows=2))
    parts = copied(6, batches=3)
    first.add(parts[0])
    aged(copies.tree(), 2)
    first.add(parts[1])
    files_of(place, Limits())
    first.add(parts[2])
    assert len(seen(place)) == 6
    other = Local(tmp_path / "other")
    first = files_of(other, Limits(rows=2))
    first.add(parts[0])
    first.add(parts[1])
    copies = other / "orders" / "_copies"
    aged(copies.tree(), 2)
    files_of(other, Limits())
    assert copies.tree() == []
    with pytest.raises(Retryable, match="files of a copy that was not complete are gone"):
        first.add(parts[2])
    assert copies.tree() == []
    assert write(other, Limits(rows=2)) != []
    assert [position for _, position, _ in seen(other)] == expected(PARTS)


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_two_processes_give_a_copy_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """One opens the folder just before the other one moves a file; both go on, and the copy is whole."""
    place = Local(tmp_path)
    said: list[str] = []
    first = files_of(place, Limits(rows=2), said)
    real, moved = Local.move_to, [0]

    def move_after_other(file: Local, to: Local) -> None:
        moved[0] += 1
        if moved[0] == nth + 1:
            files_of(place, Limits())
        real(file, to)

    monkeypatch.setattr(Local, "move_to", move_after_other)
    for part in copied(6, batches=3):
        first.add(part)
    assert len(seen(place)) == 6
    assert [file.name for file in (place / "orders").listed("*.parquet")] == said
    assert moved[0] > 3


def test_what_dead_processes_have_not_finished_is_removed(tmp_path: Path) -> None:
    """After a day, and no file of others."""
    folder = Local(tmp_path) / "orders"
    write(Local(tmp_path), Limits())
    drafts = [folder / ".x-1.new", folder / "_progress-1.new", folder / "_copies" / "after-nothing-1.new"]
    others = [folder / "mine.new", folder / "_progress-2.new"]
    for file in (*drafts, *others):
        file.write(b"x")
    aged([*drafts, others[0]], 2)
    files_of(Local(tmp_path), Limits())
    assert [file.exists() for file in (*drafts, *others)] == [False, False, False, True, True]


def test_of_two_processes_one_goes_on(place: File) -> None:
    """The other one finds another file, or another copy, in the place of its own; what is there stays."""
    first, second = files_of(place, Limits(rows=3)), files_of(place, Limits(rows=3))
    for part in copied(6, batches=2):
        first.add(part)
    begun, last = copied(6, batches=2, place=Place(1, 1, 150))
    second.add(begun)
    with pytest.raises(Retryable, match=r"another process writes the changelog of shop\.orders"):
        second.add(last)
    assert len(seen(place)) == 6
    assert len((place / "orders" / "_copies").tree()) == 1
    first, second = files_of(place, Limits()), files_of(place, Limits())
    first.add(changed([(200, UPDATE)]))
    second.add(changed([(200, UPDATE), (300, [(DELETE, 1, "w1")])]))
    first.close()
    with pytest.raises(Retryable, match=r"another process writes the changelog of shop\.orders"):
        second.close()
    assert [op for op, _, _ in seen(place)] == ["+I"] * 6 + ["-U", "+U"]


def test_what_is_damaged_or_of_others_is_named(place: File) -> None:
    """Files of others, damaged files, and documents of a newer version."""
    write(place, Limits())
    folder = place / "orders"
    (folder / "mine.parquet").write(b"x")
    with pytest.raises(UsageError, match=r"mine\.parquet is no file of a changelog"):
        files_of(place, Limits())
    (folder / "mine.parquet").delete()
    for contents, message in (
        (b"[", "cannot be read"),
        (b'{"version": 9, "read_to": "1.1.1", "last_file": null}', "newer"),
    ):
        (folder / "_progress.json").put(contents)
        with pytest.raises(StateUnreadable, match=message):
            files_of(place, Limits())
    (folder / "_progress.json").delete()
    (folder / f"{ReadTo(Place(2, 1, 1), 0, log=LOG)}.parquet").put(b"x")
    with pytest.raises(StateUnreadable, match="begin in another folder"):
        files_of(place, Limits())
    (folder / f"{ReadTo(Place(2, 1, 1), 0, log=LOG)}.parquet").delete()
    (folder / "_copies" / "after-x.json").put(b'{"attempt": "../elsewhere"}')
    with pytest.raises(StateUnreadable, match="begin in another folder"):
        files_of(place, Limits())


def test_a_folder_is_a_path_or_a_known_store(tmp_path: Path) -> None:
    """Any other URI is refused, with the stores that there are."""
    doc = {"name": "x", "source": {"host": "h", "user": "u"}, "tables": {"include": ["a.*"]}}
    config = parse_config(doc, tmp_path, {})
    assert str(ChangelogFolder.of(config, str(tmp_path), TABLE).folder) == f"{tmp_path}/shop.orders"
    assert str(ChangelogFolder.of(config, f"file://{tmp_path}", TABLE).folder) == f"{tmp_path}/shop.orders"
    for wrong in ("ftp://host/files", "S3://bucket/files", "s3:///files"):
        with pytest.raises(UsageError, match="begins with gs://, s3://, s3a://"):
            ChangelogFolder.of(config, wrong, TABLE)


def test_the_query_of_the_page_gives_the_rows_of_the_table(tmp_path: Path) -> None:
    """In DuckDB: after an update and DDL, and once more after a TRUNCATE."""
    place = Local(tmp_path)
    [query] = re.findall(r"```sql\n-- replay\n(.*?)```", PAGE, re.DOTALL)
    query = query.replace("changes/shop.orders", f"{tmp_path}/orders").replace("customer, amount", "v")
    write(place, Limits(rows=3), PARTS[:6])
    expected_rows = [(n, "w1" if n == 1 else f"v{n}") for n in range(7)] + [(10, "a"), (11, "b"), (12, "c")]
    found = DUCKDB.query(query, str(tmp_path / "first.out"))
    assert [(row["id"], row["v"]) for row in found] == expected_rows
    write(
        place, Limits(rows=3), [*PARTS[:7], changed([(700, [(INSERT, 13, "d"), (BEFORE, 13, "d"), (AFTER, 14, "e")])])]
    )
    found = DUCKDB.query(query, str(tmp_path / "second.out"))
    assert [(row["id"], row["v"]) for row in found] == [(14, "e")]
