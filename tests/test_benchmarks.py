from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.decode import document, measure
from benchmarks.participants import PARTICIPANTS, ours, reference
from benchmarks.source import Sample, serve

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


def test_our_decoders_find_every_row(sample: Sample, folder: Path) -> None:
    """Each of ours decodes all that it is given, and has its figures in the report."""
    results = measure(sample, folder, 1, OURS)
    assert {result.participant.name: result.reason for result in results} == dict.fromkeys(
        ["ours-file", "ours-wire", "reference", "ours-rows"], ""
    )
    assert [one.rows for result in results for one in result.rounds] == [CHANGES, CHANGES, 5_000, ROWS]
    assert str(CHANGES) in str(document(sample, results))


def test_who_misses_a_row_is_not_measured(sample: Sample, folder: Path) -> None:
    """A participant that finds another number of rows than there are gets no figures, but the reason."""
    [result] = measure(replace(sample, rows=ROWS + 1), folder, 1, OURS[-1:])
    assert not result.rounds
    assert result.reason == f"it found {ROWS:,} rows, not {ROWS + 1:,}"
