import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.copiers import COPIERS
from benchmarks.decode import document, measure
from benchmarks.figures import OURS as LAKEINGEST
from benchmarks.figures import Figure, Figures
from benchmarks.mirror import Mirror
from benchmarks.ours_alone import BATCHES
from benchmarks.participants import PARTICIPANTS, NotMeasured, ours, reference
from benchmarks.pipelines import main
from benchmarks.plots import bars, over_batch, over_table
from benchmarks.processes import Program
from benchmarks.pyiceberg_upsert import changed_rows, inserts_of
from benchmarks.rounds import CATCHUP, KEY, SNAPSHOT, Bench, bench, take_turn
from benchmarks.source import Sample, administrator, serve, serve_orders
from benchmarks.upserts import UPSERT, upserts
from benchmarks.workload import FIRST, LIVE, Changes, rebuild

pytestmark = pytest.mark.mysql

OURS = [participant for participant in PARTICIPANTS if participant.build in {ours, reference}]
ROWS, CHANGES = 2_000, 6_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a sample is made."""
    return tmp_path_factory.mktemp("benchmarks")


@pytest.fixture(scope="module")
def sample(folder: Path) -> Iterator[Sample]:
    """A small one."""
    with serve(folder, ROWS, CHANGES) as made:
        yield made


@pytest.mark.long("many rows")
def test_our_decoders_find_every_row(sample: Sample, folder: Path) -> None:
    """Each of ours decodes all that it is given, and has its figures in the report."""
    results = measure(sample, folder, 1, OURS)
    assert {result.participant.name: result.reason for result in results} == dict.fromkeys(
        ["ours-file", "ours-wire", "reference", "ours-rows"], ""
    )
    assert [one.rows for result in results for one in result.rounds] == [CHANGES, CHANGES, 5_000, ROWS]
    assert str(CHANGES) in str(document(sample, results))


@pytest.mark.long("runs two pipelines")
def test_who_misses_a_row_is_not_measured(sample: Sample, folder: Path) -> None:
    """A participant that finds another number of rows than there are gets no figures, but the reason."""
    [result] = measure(replace(sample, rows=ROWS + 1), folder, 1, OURS[-1:])
    assert not result.rounds
    assert result.reason == f"it found {ROWS:,} rows, not {ROWS + 1:,}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server with a small table for whole pipelines."""
    folder = tmp_path_factory.mktemp("pipelines")
    with (
        serve_orders(folder, ROWS, {}) as server,
        administrator(server) as connection,
        bench(server, connection, folder, ROWS, 500) as made,
    ):
        yield made


@pytest.mark.long("copies a table twice in a process of its own, and compares it")
@pytest.mark.e2e
@pytest.mark.spark
def test_a_turn_measures_an_equal_copy_and_sees_one_that_is_not(place: Bench) -> None:
    """All rows, then all changes are timed; the copy equals the source until a row there changes without the binlog."""
    [copier] = [one for one in COPIERS if one.name == LAKEINGEST]
    turn = take_turn(place, copier, copier.build(place.folder), 1, {SNAPSHOT, CATCHUP})
    snapshot, caught_up = next(turn), next(turn)
    assert [(one.scenario, one.count, one.unit) for one in (snapshot, caught_up)] == [
        (SNAPSHOT, ROWS, "rows"),
        (CATCHUP, 500, "changes"),
    ]
    for one in (snapshot, caught_up):
        assert 0 < one.startup < one.wall
        assert 0 < one.startup_cpu <= one.cpu  # they are sampled: the work may end before the next sample
        assert one.rss >= one.rss_largest > 50 << 20
    assert caught_up.equal == "yes"
    assert caught_up.reading is not None
    mirror = Mirror(place.folder, KEY)
    assert mirror.rows() >= ROWS + 51  # with the mark; what deletes hide is counted too
    assert mirror.least_key() == FIRST - 1
    with place.connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"UPDATE {LIVE} SET note = 'unseen', updated_at = updated_at WHERE id = {FIRST - 1}")
    metadata = mirror.metadata()
    assert metadata is not None
    assert place.reader.read(metadata, compare=True)["equal"] == "no: note"
    turn.close()
    assert mirror.metadata() is None


@pytest.mark.long("installs a peer and copies a table")
@pytest.mark.spark
@pytest.mark.parametrize("name", ["dlt", "ingestr"])
def test_a_peer_in_python_copies_every_row(place: Bench, name: str) -> None:
    """Each has an environment of its own; its copy is read, and compared with the source."""
    [copier] = [one for one in COPIERS if one.name == name]
    [copied] = take_turn(place, copier, copier.build(place.folder), 1, {SNAPSHOT})
    assert (copied.scenario, copied.count, copied.unit) == (SNAPSHOT, ROWS, "rows")
    assert copied.rss >= copied.rss_largest > 0  # ingestr is gone after a sample or two
    assert copied.equal.startswith(("yes", "no: "))
    assert copied.reading is not None


@pytest.mark.long("makes an environment")
@pytest.mark.parametrize(("name", "reason"), [("ingestr", "^pip failed: "), ("olake", "^git failed: .*not allowed")])
def test_a_peer_that_cannot_be_built_is_not_measured(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the first line of the tool that failed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")
    [copier] = [one for one in COPIERS if one.name == name]
    with pytest.raises(NotMeasured, match=reason):
        copier.build(tmp_path)


@pytest.mark.long("runs three programs")
def test_pyiceberg_upserts_until_a_batch_takes_too_long(place: Bench) -> None:
    """The smaller batch first, without the seconds in which its table is made; then the reason names the size."""
    figures = list(upserts(place, [400, 40], 1))
    assert [(one.scenario, one.count, one.table_rows) for one in figures] == [(UPSERT, 40, ROWS), (UPSERT, 400, ROWS)]
    assert all(one.net_cpu > 0 and 0 < one.net < 60 and one.rss > 50 << 20 for one in figures)
    with pytest.raises(NotMeasured, match=r"^2,000 changes of 2,000 rows: it was not done in 0 s$"):
        list(upserts(place, [2_000], 1, seconds=0))


def test_upserted_rows_have_keys_of_the_table_and_new_ones() -> None:
    """None comes twice; all other values are new."""
    keys = changed_rows(ROWS, 400)["id"].to_pylist()
    assert len(set(keys)) == 400
    assert sum(key > ROWS for key in keys) == inserts_of(400) == 100
    assert min(keys) >= 1


@pytest.mark.long("fills two servers")
def test_changes_are_the_same_each_time(place: Bench) -> None:
    """A table that is made anew and changed again is the same table; inserts and deletes have their shares."""
    sums = []
    for _ in range(2):
        rebuild(place.connection, LIVE, 3 * ROWS // 2)  # more than there are orders
        Changes(place.connection, range(FIRST, FIRST + ROWS), 1).commit(1_500)
        with place.connection.cursor() as cursor:
            cursor.execute(f"CHECKSUM TABLE {LIVE} EXTENDED")
            sums.append(cursor.fetchall())
            cursor.execute(f"SELECT COUNT(*), SUM(note = 'changed') FROM {LIVE}")
            [(rows, changed)] = cursor.fetchall()
            assert rows == 3 * ROWS // 2 + 375 - 225
            assert 600 < changed <= 900  # some of them twice, some were deleted
    assert sums[0] == sums[1]


@pytest.mark.long("takes seconds")
def test_a_program_counts_with_all_that_it_starts(tmp_path: Path) -> None:
    """Seconds and memory of a child count too, though it makes a process group of its own, as Spark's workers do."""
    burn = "import os, time; os.setpgid(0, 0); kept = bytearray(60 << 20)\nwhile time.process_time() < 1: pass"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    start += '; print(\'{"event": "x", "at": 1}\')'
    with Program([sys.executable, "-c", start], tmp_path / "log") as program:
        ended = program.await_end(60)
    assert program.event("x") == 1
    assert 0.5 < program.cpu(ended) < 3
    everything, largest = program.peaks(program.began, ended)
    assert everything > largest > 60 << 20


def test_a_program_that_fails_is_not_measured(tmp_path: Path) -> None:
    """The reason is the line that it ended with."""
    with (
        Program([sys.executable, "-c", "raise SystemExit('an error: no luck')"], tmp_path / "log") as program,
        pytest.raises(NotMeasured, match="it failed: an error: no luck"),
    ):
        program.await_end(60)


def figures(file: Path) -> Figures:
    """Two rounds of us and of a peer, and batches."""
    made = Figures({"server": "9"}, file, {"peer": ["slow"]})
    for number, (our_wall, their_wall) in enumerate([(4.0, 12.0), (3.0, 22.0)], 1):
        made.add(Figure(SNAPSHOT, LAKEINGEST, number, 100, our_wall, startup=2, cpu=1))
        made.add(Figure(SNAPSHOT, "peer", number, 100, their_wall, startup=2, cpu=3, equal="no: note"))
    for rows, seconds in ((20, 4.0), (10, 3.0)):
        for count in (1, 2):
            made.add(Figure(BATCHES, LAKEINGEST, 1, count, seconds * count, table_rows=rows, keys="recent"))
    made.leave_out(CATCHUP, "peer", "it cannot")
    return made


def test_figures_are_kept_and_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has every round; from it come the ratios round by round, the table and the pictures."""
    kept = figures(tmp_path / "figures.json")
    loaded = main(["--from-json", str(tmp_path / "figures.json"), "--plots", str(tmp_path)])
    assert loaded.all == kept.all
    assert loaded.ratios(loaded.of(SNAPSHOT, "peer"), lambda one: one.rate) == [5, 20]
    shown = capsys.readouterr().out
    for text in (
        "5.00 / 12.50 / 20.00",
        "50 / 75 / 100",
        "no: note",
        "peer: slow",
        "catchup: peer: not measured: it cannot",
    ):
        assert text in shown
    assert {file.name for file in tmp_path.glob("*.png")} == {
        "snapshot.png",
        "batches-table.png",
        "batches-changes.png",
    }


def test_pictures_show_medians_and_their_spread(tmp_path: Path) -> None:
    """The fastest first, with the least and the greatest; a line for each batch, and for each table."""
    kept = figures(tmp_path / "figures.json")
    assert bars(kept, SNAPSHOT) == [(LAKEINGEST, 50, 75, 100), ("peer", 5, 7.5, 10)]
    assert over_table(kept) == [("1 changes, recent", [10, 20], [3, 4]), ("2 changes, recent", [10, 20], [6, 8])]
    assert over_batch(kept) == [("10 rows, recent", [1, 2], [3, 6]), ("20 rows, recent", [1, 2], [4, 8])]
