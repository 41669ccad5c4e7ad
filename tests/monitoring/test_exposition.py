"""The figures as Prometheus reads them: its own parser gets back what events have said, whatever tables are called."""

import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.monitoring.definitions import DEFINITIONS, SAMPLES
from lakeingest.monitoring.exposition import Exposition, write_textfile
from lakeingest.monitoring.figures import Figures
from lakeingest.monitoring.gateway import registry_of
from lakeingest.pipeline.events import (
    Following,
    GateRun,
    Measured,
    Merged,
    Published,
    RowsReread,
    SourceLost,
    Spooled,
    Undelivered,
    WaveCommitted,
)
from lakeingest.pipeline.run.profile import StageCost
from tests.infra.test_monitoring import promtool

NAMES = ["orders", 'say "hello"', "line\nfeed", "back\\slash", "é ☃ 😀", 'a{b="c"} 1 # HELP', "tab\tand\rreturn", " "]
LOAD = Load(threads_running=3, history_list_length=40, replica_lag=2.5)


def measure(name: str, now: float) -> Measure:
    """A healthy table."""
    known = Measure(TableId("shop", name), 7, "binlog.000001:4", now - 30, 12, 1.5, "", paused=False, max_staleness=900)
    return replace(known, quarantined=2, proven_since=now - 60, companions={"history": ""})


def figures_of_all_events(now: float) -> Figures:
    """The figures of a run that has had every event, for each of the tables."""
    figures = Figures()
    for name in NAMES:
        table = TableId("shop", name)
        figures.observe(WaveCommitted(table, 1, 2, 10, 0.5, complete=True))
        figures.observe(RowsReread(table, 1, 3, 0.5, is_last=True))
        figures.observe(Merged(table, 9, 6, 3, 2, 1, 0.5))
        figures.observe(GateRun(table, "before publish", 10, 1, 2, 0.1))
        figures.observe(Published(table, 7, "binlog.000001:4", 0.25))
        figures.observe(Published(table, 7, "binlog.000001:8", 0.5))
    figures.observe(Spooled("binlog.000001:4", 5, 60, 0.1))
    figures.observe(SourceLost("away", 1.0))
    figures.observe(Undelivered("metrics.push", "away"))
    figures.observe(Following(3.0))
    figures.observe(Measured(tuple(measure(name, now) for name in NAMES), LOAD, 3600))
    return figures


def samples(text: str) -> dict[tuple[str, str], float]:
    """What Prometheus' own parser reads, by the series and the value of the label `table`."""
    families = list(text_string_to_metric_families(text))
    assert {sample.labels["pipeline"] for family in families for sample in family.samples} == {"nightly"}
    return {
        (sample.name, sample.labels.get("table", "")): sample.value for family in families for sample in family.samples
    }


def test_the_own_parser_reads_every_name_and_every_metric() -> None:
    """Quotes, line feeds, emoji and what looks like another line are data; every definition has its series."""
    now = time.time()
    figures = figures_of_all_events(now)
    figures.end(3, caught_up=True, stages=[StageCost("merges", 2, 1.5, 1.0)], error="BinlogGone")
    text = Exposition("nightly", figures).text().decode()
    assert 'lakeingest_run_exit_code{error="BinlogGone",pipeline="nightly"} 3.0' in text
    read = samples(text)
    assert {name for name, _ in read} == SAMPLES
    assert {table for _, table in read} == {"", *(str(TableId("shop", name)) for name in NAMES)}
    for name in NAMES:
        table = str(TableId("shop", name))
        assert read["lakeingest_rows", table] == 7
        assert read["lakeingest_waves_total", table] == 2
        assert read["lakeingest_publish_seconds_count", table] == 2
        assert read["lakeingest_publish_seconds_sum", table] == 0.75
        assert read["lakeingest_fresh_as_of_timestamp_seconds", table] == pytest.approx(now - 30)
        assert 30 <= read["lakeingest_freshness_seconds", table] < 60
        assert read["lakeingest_max_staleness_seconds", table] == 900
        assert read["lakeingest_quarantined_keys", table] == 2
        assert 60 <= read["lakeingest_proven_age_seconds", table] < 90
    assert read["lakeingest_run_exit_code", ""] == 3
    assert 3590 < read["lakeingest_binlog_kept_seconds", ""] <= 3600
    assert all(family.documentation for family in text_string_to_metric_families(text))


def test_promtool_reads_the_figures() -> None:
    """And finds no name that is not as it should be."""
    figures = figures_of_all_events(time.time())
    promtool("check", "metrics", given=Exposition("nightly", figures).text().decode())


def families(text: bytes) -> dict[str, tuple[str, str, dict[tuple[str, frozenset[tuple[str, str]]], float]]]:
    """What Prometheus' own parser reads of each metric: its help, its type and its samples."""
    return {
        family.name: (
            family.documentation,
            family.type,
            {(sample.name, frozenset(sample.labels.items())): sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families(text.decode())
    }


def test_the_text_is_what_the_library_of_prometheus_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a text was made before: nothing of it stays that is not so any more, and nothing new is missing."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    figures, pipeline = figures_of_all_events(now), 'nightly \\ "1"\n'
    exposition, registry = Exposition(pipeline, figures), registry_of(pipeline, figures)
    assert families(exposition.text()) == families(generate_latest(registry))
    failed = replace(measure(NAMES[1], now - 5), error="GateFailed", rows=10**15, lag_seconds=1e-7, proven_since=None)
    figures.observe(Measured((failed, measure("new one", now)), Load(), None))
    figures.observe(Published(TableId("shop", NAMES[1]), 7, "binlog.000001:9", 0.1))
    assert families(exposition.text()) == families(generate_latest(registry))
    figures.end(3, caught_up=False, stages=[StageCost("merges", 2, 1.5, 1.0)], error="BinlogGone")
    assert families(exposition.text()) == families(generate_latest(registry))
    assert len(exposition.text().splitlines()) == len(generate_latest(registry).splitlines())


def test_what_is_not_known_has_no_series() -> None:
    """Unknown is never none: no value stands for it."""
    figures = Figures()
    unknown = replace(
        measure("orders", 0),
        rows=None,
        as_of=None,
        lag_bytes=None,
        lag_seconds=None,
        max_staleness=None,
        quarantined=None,
        proven_since=None,
        error="GateFailed",
        companions={},
    )
    figures.observe(Measured((unknown,), Load(), None))
    exposition = Exposition("nightly", figures)
    text = exposition.text().decode()
    assert {name for name, table in samples(text) if table} == {"lakeingest_table_failed", "lakeingest_table_paused"}
    labels = 'error="GateFailed",exit_code="1",pipeline="nightly",table="shop.orders"'
    assert f"lakeingest_table_failed{{{labels}}} 1.0" in text
    assert "run_exit_code" not in text
    assert "lakeingest_source" not in text.replace("lakeingest_source_lost", "")
    figures.observe(Measured((replace(unknown, error="", rows=0),), Load(), None))
    text = exposition.text().decode()
    assert "GateFailed" not in text
    assert samples(text)["lakeingest_rows", "shop.orders"] == 0


@pytest.mark.parametrize(("folder_mode", "mode"), [(0o700, 0o600), (0o755, 0o644), (0o2750, 0o640)])
def test_the_text_file_is_for_whoever_may_list_its_folder(tmp_path: Path, folder_mode: int, mode: int) -> None:
    """It is replaced at once: whoever reads meanwhile has the whole old one, and no other file stays."""
    folder = tmp_path / "collector"
    folder.mkdir()
    folder.chmod(folder_mode)
    file = folder / "shop.prom"
    figures = Figures()
    exposition = Exposition("nightly", figures)
    write_textfile(file, exposition)
    with file.open() as before:
        figures.observe(Following(1.0))
        write_textfile(file, exposition)
        assert "lakeingest_run_caught_up" not in before.read()
    assert "lakeingest_run_caught_up" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert list(folder.iterdir()) == [file]


def test_a_file_that_cannot_be_replaced_leaves_nothing_else(tmp_path: Path) -> None:
    """A folder has its name."""
    (tmp_path / "shop.prom" / "taken").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_textfile(tmp_path / "shop.prom", Exposition("nightly", Figures()))
    assert list(tmp_path.iterdir()) == [tmp_path / "shop.prom"]


def test_definitions_are_as_prometheus_wants_them() -> None:
    """A counter ends in _total, and only a counter does; a unit is in the name."""
    for name, definition in DEFINITIONS.items():
        assert name.endswith("_total") == (definition.kind == "counter")
        assert definition.unit != "seconds" or name.endswith("_seconds")
        assert definition.unit != "bytes" or name.endswith("_bytes")
        assert definition.unit != "seconds since 1970" or name.endswith("_timestamp_seconds")
