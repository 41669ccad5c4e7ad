"""The quick benchmark compares ratios, and names those that have fallen."""

import json
from pathlib import Path

import pytest

from benchmarks.figures import OURS, Figure, Figures
from benchmarks.quick import KEPT, PEERS, fallen, main, ratios, table
from benchmarks.rounds import CATCHUP, SNAPSHOT


def figures(our_wall: float = 4.0, *, peers: tuple[str, ...] = PEERS) -> Figures:
    """Three rounds of ours, and of peers that take three times as long, but in one round."""
    made = Figures({"server": "9"})
    for number, factor in enumerate((1.0, 1.0, 5.0), 1):
        made.add(Figure(SNAPSHOT, OURS, number, 1_000, our_wall, startup=1.0, cpu=2.0))
        made.add(Figure(CATCHUP, OURS, number, 500, our_wall / 2, startup=1.0, cpu=1.0))
        for peer in peers:
            made.add(Figure(SNAPSHOT, peer, number, 1_000, 12.0 * factor, startup=3.0, cpu=8.0 * factor))
    return made


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Of what a row takes; changes of ours are compared with as many rows of a peer."""
    found = ratios(figures())
    assert {name: ratio for name, ratio in found.items() if name.endswith("rivet")} == pytest.approx(
        {
            "copy, seconds, rivet": 3.0,
            "copy, seconds without start-up, rivet": 3.0,
            "copy, CPU seconds, rivet": 4.0,
            "catch up, seconds, rivet": 3.0,
            "catch up, seconds without start-up, rivet": 4.5,
            "catch up, CPU seconds, rivet": 4.0,
        }
    )
    assert len(found) == 6 * len(PEERS)


def test_a_round_without_its_peer_has_no_ratio() -> None:
    """Who was not measured is not guessed."""
    assert ratios(figures(peers=())) == {}
    assert all(name.endswith("rivet") for name in ratios(figures(peers=("rivet",))))


@pytest.mark.parametrize(
    ("now", "lines"),
    [
        ({"a": 2.0, "b": 1.0}, []),
        ({"a": 1.70, "b": 0.85}, []),  # 15 %, no more
        ({"a": 9.0, "b": 1.0, "new": 0.1}, []),
        ({"a": 1.68, "b": 1.0}, ["a: 1.68; it was 2.00, so it has fallen by 16%"]),
        ({"b": 0.5}, ["a: not measured; it was 2.00", "b: 0.50; it was 1.00, so it has fallen by 50%"]),
    ],
)
def test_what_has_fallen_is_named(now: dict[str, float], lines: list[str]) -> None:
    """By more than the tolerance, or out of sight."""
    assert fallen(now, {"a": 2.0, "b": 1.0}) == lines


def test_a_run_fails_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run keeps, the same figures meet; slower ones do not, and the exit code says so."""
    kept, file = tmp_path / "kept.json", tmp_path / "figures.json"

    def compared(made: Figures, *more: str) -> int:
        made.file = file
        made.leave_out("build", "another", "no tools")  # writes the file
        return main(["--from-json", str(file), "--kept", str(kept), *more])

    assert compared(figures(), "--keep") == 0
    assert json.loads(kept.read_text())["about"]["server"] == "9"
    assert compared(figures()) == 0
    assert "build: another: no tools" in capsys.readouterr().err
    assert compared(figures(5.0)) == 1
    shown = capsys.readouterr()
    assert "copy, seconds, rivet: 2.40; it was 3.00, so it has fallen by 20%" in shown.err
    assert "CPU" not in shown.err
    assert "copy, seconds, rivet" in shown.out


def test_a_table_has_old_and_new_ratios() -> None:
    """With a dash where there is none."""
    shown = [line.split() for line in table({"a": 1.0}, {"b": 2.0}).splitlines()[1:]]
    assert shown == [["b", "-", "2.00"], ["a", "1.00", "-"]]


def test_the_kept_ratios_are_of_these_peers() -> None:
    """All of them, and for each work and measure."""
    doc = json.loads(KEPT.read_text())
    assert set(doc["ratios"]) == set(ratios(figures()))
