"""Copies that nobody has changed since the last run: a run and `status` know them without a look at their metadata."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakeingest.commands.status import Statuses, status
from lakeingest.config import CATALOG
from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite, NotOurCopy
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.known_copies import NAME
from lakeingest.pipeline.events import Published, WaveCommitted, WentBack
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.local("the catalog is a file")]


@pytest.fixture
def pair(pipe: Pipe) -> Pipe:
    """Two published copies."""
    for name in ("busy", "still"):
        pipe.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"
        )
    pipe.run()
    return pipe


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose metadata a run or a command looks at from now on."""
    found: list[str] = []

    def counted(name: str) -> None:
        look: Callable[[IcebergTarget, TableId], object] = getattr(IcebergTarget, name)

        def noting(target: IcebergTarget, table: TableId) -> object:
            if table.name in {"busy", "still"}:  # the warehouse has tables of other tests, too
                found.append(table.name)
            return look(target, table)

        monkeypatch.setattr(IcebergTarget, name, noting)

    counted("look")
    counted("recover")
    return found


def metadata_of(pipe: Pipe, table: str) -> Path:
    """The file with the present metadata of a copy."""
    with catalog_of(pipe.config.target) as catalog:
        return Path(catalog.load_table((pipe.database, table)).metadata_location.removeprefix("file://"))


def without_ages(statuses: Statuses) -> list[object]:
    """What can be compared of a status: all but times that pass. A copy without a lag is as fresh as this second."""
    return [*(replace(table, binlog_seconds=None, fresh_as_of=None) for table in statuses), statuses.notes[:-1]]


def test_a_copy_that_nobody_has_changed_is_not_looked_at(pair: Pipe, looks: list[str]) -> None:
    """Neither by the next run, nor by one that publishes another table, nor by `status`, which says the same."""
    known = status(pair.config)
    pair.run()
    pair.sql("UPDATE busy SET v = 9 WHERE id = 2")
    pair.run()
    assert looks == []
    pair.run()
    after = status(pair.config)
    assert looks == []
    assert [event.table.name for event in pair.seen(Published)[2:] if isinstance(event, Published)] == ["busy"]
    (pair.state / NAME).delete()
    for looked_at, known_one in zip(without_ages(status(pair.config)), without_ages(after), strict=True):
        assert looked_at == known_one
    assert sorted(looks) == ["busy", "still"]
    assert [table.rows for table in known] == [table.rows for table in after] == [3, 3]
    pair.assert_equal()


RUN = """
import pickle, sys
from lakeingest.late_imports import import_late
import_late()
from lakeingest.commands.run import forked_nursery, run
config = pickle.load(sys.stdin.buffer)
with forked_nursery(config) as nursery:
    run(config, nursery=nursery)
print(*sys.modules)
"""


def imported_by_a_run(pipe: Pipe) -> set[str]:
    """The modules that a process has imported after its run."""
    config = pickle.dumps(pipe.config)
    done = subprocess.run([sys.executable, "-c", RUN], input=config, stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


def test_a_run_with_nothing_to_do_imports_no_format(pair: Pipe) -> None:
    """The import of PyIceberg takes a third of such a run. A run that finds a change imports it."""
    formats = {"pyiceberg", "lakeingest.lake.iceberg.package"}
    assert imported_by_a_run(pair).isdisjoint(formats)
    pair.sql("UPDATE busy SET v = 9 WHERE id = 2")
    assert imported_by_a_run(pair) >= formats
    pair.assert_equal()


def test_a_commit_of_others_is_found_by_the_next_look(pair: Pipe) -> None:
    """`status` shows it, and a run refuses to go on."""
    pair.spark.sql(f"INSERT INTO {CATALOG}.{pair.database}.still VALUES (77, 77)")
    assert [table.state for table in status(pair.config)] == ["published", "stopped"]
    with pytest.raises(ForeignWrite, match="still"):
        pair.run()


@pytest.mark.parametrize("damage", ["gone", "shorter"])
@pytest.mark.parametrize("what", ["metadata", "list", "manifest", "rows"])
@pytest.mark.long("each file is lost in one way in turn", turn="damage")
def test_a_file_of_a_known_copy_that_is_lost_is_found(pair: Pipe, what: str, damage: str) -> None:
    """As if the copy was not known: the run goes back to the commit before, and copies no chunk again."""
    pair.sql("UPDATE still SET v = 9 WHERE id = 2")
    pair.run()
    waves = len(pair.seen(WaveCommitted))
    pattern = {
        "metadata": "*.metadata.json",
        "list": "snap-*.avro",
        "manifest": "*-m*.avro",
        "rows": "../data/*.parquet",
    }
    folder = metadata_of(pair, "still").parent
    newest = max(folder.glob(pattern[what]), key=lambda path: path.stat().st_mtime_ns)
    if damage == "gone":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:-1])
    pair.run()
    assert [event.table.name for event in pair.seen(WentBack) if isinstance(event, WentBack)] == ["still"]
    pair.assert_equal()
    assert len(pair.seen(WaveCommitted)) == waves


@pytest.mark.parametrize("contents", [b"", b"\x00\xff", b'"other"\nnonsense', None])
@pytest.mark.long("one damage in turn", turn="contents")
def test_damaged_notes_are_no_notes(pair: Pipe, looks: list[str], contents: bytes | None) -> None:
    """All copies are looked at, and noted again. A line that is cut off concerns its table alone."""
    whole = (pair.state / NAME).read()
    (pair.state / NAME).write(whole[:-9] if contents is None else contents)
    pair.run()
    assert set(looks) == ({"still"} if contents is None else {"busy", "still"})
    assert (pair.state / NAME).read() == whole


def test_another_pipeline_yml_makes_the_notes_void(pair: Pipe, looks: list[str]) -> None:
    """Whatever has changed in it: what a look finds may depend on that."""
    pair.config = pair.config.model_copy(
        update={"target": pair.config.target.model_copy(update={"merge": "row_delta"})}
    )
    pair.run()
    assert set(looks) == {"busy", "still"}
    looks.clear()
    pair.run()
    assert looks == []


def test_a_known_copy_of_another_pipeline_is_refused(pair: Pipe) -> None:
    """A hand-over is a commit, too."""
    with catalog_of(pair.config.target) as catalog:
        table = catalog.load_table((pair.database, "still"))
        owner = Owner("another", id="1", state="elsewhere").to_text()
        with table.transaction() as transaction:
            transaction.set_properties({"lakeingest.owner": owner})
    with pytest.raises(NotOurCopy, match="still"):
        pair.run()
