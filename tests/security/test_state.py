"""Documents of the state that are damaged or crafted: each is refused by name, or passed over, and leads nowhere."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakeingest.config import History
from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.file_names import file_name
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files import local
from lakeingest.files.local import Local
from lakeingest.lake.staged.staging import StagingCommit, StagingFolder, tables_in
from lakeingest.lake.waiting import waiting_of
from lakeingest.mysql.connection import query
from lakeingest.spool import archive, reread_files
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool
from lakeingest.state import last_run, lease
from lakeingest.state.definition import defined_tables, definition
from lakeingest.state.owner import owner_of
from lakeingest.state.quiet import read_quiet
from lakeingest.state.signals import SignalFolder
from lakeingest.state.stopped import Stopped, StoppedTables, read_stopped
from lakeingest.state.vanished import vanished_run
from tests.security.hostile import PLAIN, tables_on

CRAFTED: list[object] = [None, [], {"x": []}, "../../x", -1, float("inf"), True]
TEXTS = ["", "[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "1e999", "NaN", "null", "[]", "\x00", "\udcff", '"x"']


def readers(state: Local) -> list[Callable[[], object]]:
    """All that reads documents of the state."""
    waiting = waiting_of(state / "waiting", PLAIN, History.model_validate({"readers": "1h"}))
    staging = StagingFolder(PLAIN, state / "staging" / file_name(str(PLAIN)))
    return [
        lambda: owner_of(state),
        lambda: Spool.load(state / "spool"),
        lambda: [one.read() for one in archive.all_archived(state / "spool")],
        lambda: list(reread_files.leftovers(state / "spool")),
        lambda: definition(state, PLAIN),
        lambda: defined_tables(state),
        lambda: read_stopped(state, PLAIN),
        lambda: read_quiet(state),
        lambda: SignalFolder(state).read(),
        lambda: last_run.failure(state),
        lambda: last_run.of_job(state, "x"),
        lambda: last_run.last_progress(state, "h", 1),
        lambda: lease.is_held(state),
        lambda: vanished_run(state),
        waiting.check_whole,
        waiting.all,
        lambda: list(waiting.due()),
        staging.commits,
        lambda: list(tables_in(state / "staging")),
    ]


@pytest.fixture(scope="module", params=["iceberg", "hudi"])
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mysql_server: LocalServer) -> Local:
    """The state of a pipeline that has run twice, with a document of each kind."""
    folder = tmp_path_factory.mktemp("pipeline")
    with tables_on(mysql_server, folder) as tables:
        config = tables.config(format=request.param)
        tables.copied(config)
        query(tables.connection, f"INSERT INTO {PLAIN.database}.{PLAIN.name} VALUES (3, 'c')")
        tables.copied(config)
    found = Local(folder / "state")
    last_run.record(found, {"exit": 1, "error": "x", "set": ["a"]})
    StoppedTables(found).record(Stopped.of(PLAIN, StateUnreadable("x")))
    (found / "waiting" / file_name(str(PLAIN))).mkdir(parents=True, exist_ok=True)
    (found / "lease.json").write_text(json.dumps({"token": "x", "host": "h", "pid": 1, "boot": None, "started": None}))
    return found


@pytest.mark.long("takes seconds")
def test_no_document_that_is_damaged_or_crafted_is_an_internal_error(state: Local) -> None:
    """Each value of each document is replaced, and each document as a whole: by other types, numbers, depths, names."""
    documents = sorted(state.rglob("*.json"))
    assert len(documents) > 5
    for path in documents:
        before = path.read_bytes()
        try:
            for text in changed(before):
                path.write_text(text, errors="surrogateescape")
                read_all(state, f"{path}: {text[:200]}")
        finally:
            path.write_bytes(before)


def read_all(state: Local, what: str) -> None:
    """Read the state; an error has a name."""
    for read in readers(state):
        try:
            read()
        except LakeIngestError:
            pass
        except FileNotFoundError:
            pass
        except Exception as error:
            raise AssertionError(what) from error


def changed(contents: bytes) -> Iterator[str]:
    """A document with another value in one place, or another text."""
    yield from TEXTS
    doc = json.loads(contents)
    for place in places(doc):
        for value in CRAFTED:
            other = copy.deepcopy(doc)
            inner = other
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = value
            yield json.dumps(other)


def places(doc: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values of a document are; of a list only the first one."""
    inside = list(doc.items()) if isinstance(doc, dict) else list(enumerate(doc[:1])) if isinstance(doc, list) else []
    for step, value in inside:
        yield (*above, step)
        yield from places(value, (*above, step))


@pytest.mark.parametrize("name", ["../../x", "data/../../x", "/etc/passwd", "", "data/", "data/..", "a\0b", "."])
def test_no_document_names_a_file_of_another_place(name: str) -> None:
    """Files that it names are read, and deleted when nobody needs them."""
    position = "binlog.000001:4"
    doc: dict[str, Any] = {
        "start": position,
        "stop": position,
        "gtids": "",
        "transactions": "data/t.parquet",
        "tables": {},
    }
    Manifest.from_json(doc)
    for other in ({**doc, "transactions": name}, {**doc, "tables": {"a.b": [name, 1]}}):
        with pytest.raises(ValueError, match="is no part of a path below its folder"):
            Manifest.from_json(other)
    commit = StagingCommit(
        1, 1, None, Progress(PLAIN, "x", "u", 0, Place(0, 0, 0)), ("id",), ("data/x.parquet",)
    ).to_json()
    StagingCommit.from_json(1, commit)
    for key in ("rows", "changes"):
        with pytest.raises(StateUnreadable):
            StagingCommit.from_json(1, {**commit, key: [name]})


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "huge"])
def test_what_is_no_file_is_not_read(kind: str, tmp_path: Local) -> None:
    """Neither through a link, nor from a pipe, which would never end, nor more than there is memory for."""
    path, other = tmp_path / "owner.json", tmp_path / "other"
    other.write_text(json.dumps({"pipeline": "a", "server": "b"}))
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(local.MOST_BYTES + 1)
    with pytest.raises((OSError, ValueError)):
        files.document(path)
    with pytest.raises(StateUnreadable, match=r"owner\.json cannot be read"):
        owner_of(tmp_path)
