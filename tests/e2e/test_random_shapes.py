"""Random DDL and DML of tables whose copies have shapes by chance: each copy equals what was chosen of its source.

`LAKEINGEST_SHAPES=1000` tries so many sequences on each server in memory, and `LAKEINGEST_SHAPES_LAKE=50` in a lake by
whole runs, from the seed LAKEINGEST_DDL_FIRST on. A failure names the seed, and the shortest statements that show it.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest

from lakeingest.core.tables.change import RowKind
from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.files.local import Local
from lakeingest.mysql.wire import event_buffer, matching
from lakeingest.mysql.wire.matching import kinds_of_matching
from tests.e2e.ddl_copies import CopiesInMemory, in_lake, in_memory
from tests.e2e.ddl_histories import batches, mood_of
from tests.e2e.ddl_shapes import Shaped, with_shapes
from tests.e2e.pipe import Pipe
from tests.e2e.test_random_ddl import FIRST, RUN_TABLES, SHRUNK, TABLES, server, told
from tests.servers.session_variables import imposed

__all__ = ["server"]  # a fixture
pytestmark = [pytest.mark.e2e, pytest.mark.mysql]

IN_MEMORY = int(os.environ.get("LAKEINGEST_SHAPES", "10"))
IN_LAKE = int(os.environ.get("LAKEINGEST_SHAPES_LAKE", "5"))
BITES = 100  # sequences within which a fault is found


def played(server: LocalServer, folder: Local, seeds: Iterable[range]) -> tuple[list[str], CopiesInMemory]:
    """What differs in memory, in words, and the copies."""
    parts, reports = list(seeds), list[str]()
    every = range(parts[0].start, parts[-1].stop)
    with in_memory(server, folder, partial(with_shapes, seeds=every)) as stage:
        for part in parts:
            tables = [Shaped(seed) for seed in part]
            with imposed(server, "default", mood_of(part)):
                reports += told(stage, tables, stage.play(tables), SHRUNK - len(reports))
            stage.writer.drop(tables)
        assert isinstance(stage.copies, CopiesInMemory)
        return reports, stage.copies


@pytest.mark.long("the same with other rows in the binlog", only=("MySQL, FULL", "MariaDB 11.4, MINIMAL"))
@pytest.mark.timeout(900 if IN_MEMORY < 100 else 0)
@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4, FULL",))
def test_a_copy_of_any_shape_is_what_was_chosen_of_the_source(
    server: LocalServer, tmp_path: Local, record_property: Callable[..., None]
) -> None:
    """In memory: columns left out, hashed, masked, cast and renamed, and a condition on rows."""
    reports, copies = played(server, tmp_path, batches(FIRST, IN_MEMORY, TABLES))
    assert not reports, "\n\n".join(reports)
    followed, again = (copies.outcomes[outcome] for outcome in ("followed", "read again"))
    assert followed > IN_MEMORY / 3
    record_property(
        "random shapes", f"{server.flavor.name}: {IN_MEMORY} sequences; followed {followed}, read again {again} times"
    )


@pytest.mark.any_format
@pytest.mark.spark
@pytest.mark.parametrize(
    "seeds", batches(FIRST, IN_LAKE, RUN_TABLES), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}"
)
@pytest.mark.long("some hundred statements of each of several tables")
def test_a_copy_of_any_shape_is_followed(pipe_on: Callable[..., Pipe], server: LocalServer, seeds: range) -> None:
    """By whole runs; also with partitions, and on Iceberg with an order of rows."""
    pipe = pipe_on(server, chunk_rows=10)
    is_hudi = pipe.config.target.format == "hudi"
    chosen = partial(with_shapes, seeds=seeds, divided=True, plain=is_hudi)
    with in_lake(pipe, chosen) as stage, imposed(server, "default", mood_of(seeds)):
        tables = [Shaped(seed) for seed in seeds]
        reports = told(stage, tables, stage.play(tables))
    assert not reports, "\n\n".join(reports)


def unmatched(patch: pytest.MonkeyPatch) -> None:
    """Changes of rows that do not meet the condition of the user get into the copy."""
    patch.setattr(event_buffer, "matching_changes", lambda batch, _schema: batch)


def given_other_kinds(patch: pytest.MonkeyPatch, wrong: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    """`wrong` gets the kinds of changes as the binlog has them, and as they are for the copy; it returns the latter."""
    patch.setattr(
        matching, "kinds_of_matching", lambda kinds, is_match: wrong(kinds, kinds_of_matching(kinds, is_match))
    )


def staying(patch: pytest.MonkeyPatch) -> None:
    """A row that ceases to meet the condition stays in the copy."""
    given_other_kinds(patch, lambda kinds, of_copy: np.where(kinds == of_copy, of_copy, np.int8(RowKind.INSERT)))


def not_coming(patch: pytest.MonkeyPatch) -> None:
    """A row that comes to meet the condition does not get into the copy."""
    given_other_kinds(patch, lambda kinds, of_copy: np.where(kinds == of_copy, of_copy, np.int8(RowKind.DELETE)))


@pytest.mark.parametrize("fault", [unmatched, staying, not_coming])
@pytest.mark.long("up to a hundred tables, until the fault is found")
@pytest.mark.timeout(0)
def test_a_fault_of_shapes_is_found(
    server_of: Callable[..., LocalServer],
    tmp_path: Local,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """Each is put in, and shows as a difference."""
    fault(monkeypatch)
    server = server_of(MYSQL)
    for part in batches(0, BITES, TABLES):
        with in_memory(server, tmp_path / str(part.start), partial(with_shapes, seeds=part)) as stage:
            tables = [Shaped(seed) for seed in part]
            if stage.play(tables):
                return
    pytest.fail(f"nothing differs in {BITES} sequences")
