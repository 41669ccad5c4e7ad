"""A run takes no more connections of the source than it may, whatever is read at the same time."""

import threading
from pathlib import Path

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.pipeline.run import executors
from lakeingest.pipeline.run.executors import CHUNK_CONNECTIONS, DRIVER_CONNECTIONS, Executors
from lakeingest.spark.background_job import BackgroundJob


def config(folder: Path, connections: int, master: str | None = None) -> Config:
    """A pipeline that is nowhere."""
    source = {"host": "127.0.0.1", "user": "nobody", "max_connections": connections}
    spark = {} if master is None else {"spark": {"conf": {"spark.master": master}}}
    doc = {"name": "none", "source": source, "tables": {"include": ["none.*"]}, **spark}
    return parse_config(doc, folder, {})


@pytest.mark.parametrize(
    ("master", "slots"),
    [(None, 7), ("local[4]", 4), ("local[3, 2]", 3), ("local", 1), ("local[*]", 7), ("local[*,2]", 7)],
)
def test_a_local_master_sets_the_number_of_tasks_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str | None, slots: int
) -> None:
    """Without a number, the number of processors counts."""
    monkeypatch.setattr(executors, "local_slots", lambda: 7)
    assert Executors(config(tmp_path, 100, master)).at_once == slots


@pytest.mark.parametrize("connections", [5, 8, 9, 16, 17])
@pytest.mark.parametrize("slots", [1, 2, 4, 16])
def test_chunks_and_the_binlog_share_the_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, connections: int
) -> None:
    """While a wave is read beside the binlog, or in turn; once it is done the binlog has its readers again."""
    monkeypatch.setattr(executors, "local_slots", lambda: slots)
    for kind in ("at_once_beside", "at_once_in_turn"):
        found = Executors(config(tmp_path, connections))
        alone, end = found.readers, threading.Event()
        chunks = getattr(found, kind)
        assert 1 <= chunks <= slots
        job = found.beside(BackgroundJob(None, end.wait), chunks)
        assert DRIVER_CONNECTIONS + CHUNK_CONNECTIONS * chunks + found.readers <= connections
        end.set()
        assert job.result()
        assert found.readers == alone
