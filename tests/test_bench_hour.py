"""The hour of following: which changes belong to which phase, and what readers of a copy's files have seen."""

import json
from pathlib import Path

import pytest

from benchmarks.hour import main
from benchmarks.phases import QUIET, Phase, Seen, by_phase, percentile, table

SEEN = [Seen("t", at, at + wait) for at, wait in ((0, 1.0), (10, 2.0), (15, 3.0), (20, 4.0), (21, 5.0))]


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (1, 1), (50, 50), (95, 95), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    """So many percent of the values are not greater."""
    assert percentile([*range(100, 0, -1)], percent) == value


def test_changes_belong_to_the_phase_of_their_commit() -> None:
    """Both ends of a phase are in it; where two meet, the later one counts; a phase may have no changes."""
    phases = [Phase("a", 10, 20), Phase("b", 20, 20.5), Phase("c", 30, 40)]
    assert by_phase(SEEN, phases) == {
        QUIET: [pytest.approx(1), pytest.approx(5)],
        "a": [2, 3],
        "b": [4],
        "c": [],
    }


def test_figures_are_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the percentiles of all phases together first."""
    kept = tmp_path / "hour.json"
    kept.write_text(json.dumps({"format": "hudi", "cores of ours": 0.25, "phases": by_phase(SEEN, [])}))
    main(["--from-json", str(kept)])
    shown = capsys.readouterr().out
    assert f"{'all':28}{5:>10}    3.00    5.00    5.00    5.00" in shown
    assert "cores of ours: 0.25" in shown
    assert f"{'c':28}{0:>10}       -" in table({"c": []})
