"""What the driver of a run takes for each chunk, wave, table and change file, measured by the product's own code.

There is no server: the numbers that a server would give are made up, and no answer is waited for. Tables are in a
temporary folder, with a catalog in SQLite. Seconds are those of the processor: nothing waits for a disk, a store or a
catalog on another machine.
"""

import gc
import pickle
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.source import orders
from lakeingest.config import Config, Source, parse_config
from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import FilePosition, GtidSet, Place, Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.proofs.witness import ChunkLook, Looked
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.core.waves.chunks import BYTES_MAX, SECONDS_MAX, Cost
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Target, Written
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.mysql.source import Source as OpenSource
from lakeingest.mysql.source_types import source_type
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.tasks import Copied, CopyChunk, Copying, run_task
from lakeingest.pipeline.copying.waves import MERGE_SPLITS
from lakeingest.pipeline.run.pickled_once import PickledOnce
from lakeingest.pipeline.run.profile import Profile
from lakeingest.rows import table_schema
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool

AT_ONCE = 100
_AGAIN = 16
CHUNK_ROWS = 50_000  # what the first wave of a table has
_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = Position(_UUID, 1, FilePosition("binlog.000001", 4), GtidSet.parse(f"{_UUID}:1-1000"))
COLUMNS = (
    Column("id", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
    Column("customer_id", Kind.INT32, source_type("int"), nullable=False),
    Column("order_no", Kind.STRING, source_type("varchar(32)"), nullable=False),
    Column("email", Kind.STRING, source_type("varchar(128)")),
    Column("status", Kind.STRING, source_type("enum('new','paid','shipped','delivered','cancelled')"), nullable=False),
    Column("amount", Kind.DECIMAL, source_type("decimal(18,4)"), nullable=False, precision=18, scale=4),
    Column("qty", Kind.INT32, source_type("smallint unsigned")),
    Column("ratio", Kind.DOUBLE, source_type("double")),
    Column("created_at", Kind.DATETIME, source_type("datetime(6)"), nullable=False, fraction=6),
    Column("updated_at", Kind.TIMESTAMP, source_type("timestamp(6)"), nullable=False, fraction=6),
    Column("attrs", Kind.JSON, source_type("json")),
    Column("note", Kind.STRING, source_type("text")),
)


class _Estimates:
    """In the place of an open source: the numbers that a planner asks for, of a table with keys from 1 on."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def estimated_rows(self, *_: object) -> int:
        return self._rows

    def estimated_bytes(self, *_: object) -> int:
        return self._rows * 200

    def key_bounds(self, *_: object) -> tuple[int, int]:
        return 1, self._rows


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the driver by what they are for, and its bytes of memory. Pairs are (how many, seconds or bytes)."""

    row_bytes: float  # of a row in Arrow
    plan: float  # these four are of a chunk
    send: float
    receive: float
    note: float
    create: float  # of a table
    commit: tuple[tuple[int, float], ...]  # of a wave of so many chunks
    publish: tuple[tuple[int, float], ...]  # of a first publish with so many files of 50,000 rows
    again: float  # the commit of a merge of a few changes, and its publish
    late: tuple[tuple[int, float], ...]  # of a wave of one chunk, in a table that has had so many waves
    append: tuple[tuple[int, float], ...]  # of a segment in which each of so many tables has a file
    idle: tuple[tuple[int, float], ...]  # of a segment that watches so many tables, of which one has a file
    find: float  # to find the files of a table, for each segment of the spool
    copy_rss: tuple[tuple[int, int], ...]  # of the process, with so many chunks of 10,000 tables
    entry_rss: float  # of a changed table in a segment of the spool

    @property
    def chunk(self) -> float:
        """Of a chunk, without the commit of its wave."""
        return self.plan + self.send + self.receive + self.note

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{name: _pairs(value) for name, value in doc.items()})

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)


def _pairs(value: Any) -> Any:
    return tuple(map(tuple, value)) if isinstance(value, list) else value


class _Clock:
    """Adds up seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work answers."""
        began = time.process_time()
        answer = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return answer


def schema_of(number: int) -> TableSchema:
    """The definition of a table, of which no part is shared with that of another table."""
    definition = TableSchema(TableId("benchmark", f"orders_{number:05}"), COLUMNS, ("id",), index="PRIMARY")
    return cast(TableSchema, pickle.loads(pickle.dumps(definition)))  # noqa: S301 - our own


def rss() -> int:
    """The bytes of memory of this process."""
    gc.collect()
    [resident] = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(resident) << 10


def measure(folder: Path, chunks: int = 1_000_000, waves: int = 1_000, files: tuple[int, ...] = (1, 41, 161)) -> Costs:
    """All costs; `chunks` and `waves` are the most that are tried, `files` how many are published."""
    target = open_target(_lake(folder))
    first = schema_of(0)
    target.create(first, created(first))
    rows = _rows(first)
    a_file = target.writer(first.table).write(rows.slice(0, 1_000))
    clock, copy_rss = _chunks(target, first, a_file, chunks)
    creating, sizes = _Clock(), (1, 100, 400)
    commits = tuple(
        (count, _commit(creating, target, number, count, a_file)[0]) for number, count in enumerate(sizes, 1)
    )
    publishes = tuple(
        (count, _commit(creating, target, number, count, a_file, rows)[1]) for number, count in enumerate(files, 10)
    )
    late = _late_commits(target, a_file, waves)
    append, idle, find, entry = _spool(folder)
    return Costs(
        row_bytes=orders(1, CHUNK_ROWS).nbytes / CHUNK_ROWS,
        **{name: seconds / chunks for name, seconds in clock.seconds.items()},
        create=creating.seconds["create"] / (len(sizes) + len(files)),
        commit=commits,
        publish=publishes,
        again=_again(target, rows),
        late=late,
        append=append,
        idle=idle,
        find=find,
        copy_rss=copy_rss,
        entry_rss=entry,
    )


def _lake(folder: Path) -> Config:
    doc = {"name": "scale", "source": {"host": "127.0.0.1", "user": "nobody"}, "tables": {"include": ["benchmark.*"]}}
    return parse_config(doc, folder, {})


def created(schema: TableSchema) -> Progress:
    return Progress(schema.table, schema.fingerprint, _UUID, 1, START.place).created()


def _rows(schema: TableSchema) -> pa.Table:
    """The rows of a chunk."""
    rows, wanted = orders(1, CHUNK_ROWS), table_schema(schema)
    return pa.Table.from_arrays([rows[field.name].cast(field.type) for field in wanted], schema=wanted)


def _renamed(files: Written, count: int) -> list[Written]:
    """Copies of a written file: `count` files with the same statistics, each with a new name.

    The new files do not exist. That is no fault here, because a commit reads no data file.
    """
    [file] = pickle.loads(files)  # noqa: S301 - our own
    name = str(file.file_path)
    uniques = (f"{uuid.uuid4()}.parquet" for _ in range(count))
    return [Written(files.replace(name.encode(), (name[: -len(end)] + end).encode())) for end in uniques]


def _answer(chunk: CopyChunk, number: int, files: Written) -> bytes:
    """The answer of a worker for a chunk: a split with new watermarks, a file, and the costs of three stages."""
    high, profile = FilePosition("binlog.000001", 1_000 + number), Profile()
    for stage in ("chunks: read", "chunks: look", "chunks: write"):
        with profile.stage(stage):
            pass
    split = Split(chunk.chunk.range, GtidSet.parse(f"{_UUID}:1-{1_000 + number}"), high.place(1))
    cost = Cost(CHUNK_ROWS, 10 << 20, 1.0)
    return pickle.dumps(
        (Copied(files, CHUNK_ROWS, split, high, cost, sound=True, nulled=0, looked=Looked(), profile=profile), None)
    )


def normalised(progress: Progress, number: int) -> Progress:
    """The progress after a merge, which leaves one split."""
    keys, place = KeyRange(None, progress.splits.copied_up_to), Place(1, 1, 1_000 + number)
    at = replace(START, at=FilePosition("binlog.000001", place.pos))
    return replace(progress, splits=Splits((Split(keys, merged_at=place),)), position=at)


def _chunks(
    target: Target, schema: TableSchema, files: Written, count: int
) -> tuple[_Clock, tuple[tuple[int, int], ...]]:
    """The driver's work for each of so many chunks of 10,000 tables, without commits; its memory as they become more.

    What a run keeps of each table stays: its definition and its progress, with the splits of its copy.
    """
    clock, memory, source = _Clock(), [], Source(host="127.0.0.1", user="nobody")
    kept: list[tuple[TableSchema, Progress]] = []
    writer, cap = target.writer(schema.table), Cap(SECONDS_MAX, BYTES_MAX, None)
    done, tables = 0, min(10_000, count)
    for number in range(tables):
        schema, estimates = schema_of(number), _Estimates(count // tables * CHUNK_ROWS)
        planner = Planner(cast(OpenSource, estimates), schema, TableOptions(chunk_rows=CHUNK_ROWS), AT_ONCE)
        progress, lower = created(schema), cast(Key | None, None)
        while not progress.splits.complete:
            planned = clock.of("plan", lambda: planner.next_wave(lower))  # noqa: B023 - called at once
            shared = PickledOnce(Copying(source, schema, _UUID, 1, FilePosition("binlog.000001", 4), cap, writer))
            tasks = [CopyChunk(shared, chunk, ChunkLook()) for chunk in planned]
            clock.of("send", lambda: [pickle.dumps((run_task, task)) for task in tasks])  # noqa: B023
            answers = [_answer(task, done + index, files) for index, task in enumerate(tasks)]
            parts = clock.of("receive", lambda: [pickle.loads(answer) for answer in answers])  # noqa: B023, S301
            splits = [part.split for part, _ in parts]
            progress = clock.of("note", lambda: progress.wave_committed(tuple(splits), 1))  # noqa: B023
            done, lower = done + len(parts), progress.splits.copied_up_to
            if len(progress.splits.all) >= MERGE_SPLITS and not progress.splits.complete:
                progress = normalised(progress, done)
        kept.append((schema, progress))
        if (number + 1) % max(1, tables // 10) == 0:
            memory.append((done, rss()))
    return clock, tuple(memory)


def _commit(
    creating: _Clock, target: Target, number: int, count: int, files: Written, rows: pa.Table | None = None
) -> tuple[float, float]:
    """The seconds of the commit of a wave of so many chunks, in a new table, and of its publish.

    With `rows`, each chunk has them under keys of its own. Without them its file is a name, and nothing is published.
    """
    schema = schema_of(number)
    staged = creating.of("create", lambda: target.create(schema, created(schema)))
    written = _renamed(files, count)
    if rows is not None:
        ids, writer = rows["id"].cast(pa.int64()), target.writer(schema.table)
        shifted = (pc.add(ids, index * CHUNK_ROWS).cast(rows.schema.field("id").type) for index in range(count))
        written = [writer.write(rows.set_column(0, rows.schema.field("id"), keys)) for keys in shifted]
    clock = _Clock()
    progress = staged.progress.wave_committed(splits_read(None, count, 0, last=True), count * CHUNK_ROWS)
    staged = clock.of("commit", lambda: target.commit_wave(staged, written, progress))
    if rows is not None:
        clock.of("publish", lambda: target.publish(staged, schema, {}))
    return clock.seconds["commit"], clock.seconds.get("publish", 0.0)


def _again(target: Target, rows: pa.Table) -> float:
    """The seconds to commit a few changes and to publish them: of every 16 publishes, one looks at all files."""
    schema, changes = schema_of(20), rows.slice(0, 10)
    staged = target.create(schema, created(schema))
    wave = splits_read(None, 1, 0, last=True)
    written = [target.writer(schema.table).write(rows)]
    staged = target.commit_wave(staged, written, staged.progress.wave_committed(wave, CHUNK_ROWS))
    staged, clock = target.publish(staged, schema, {}), _Clock()
    deleted = changes.append_column(DELETED, pa.array([False] * changes.num_rows))
    for _ in range(_AGAIN):
        merger = target.merger(staged, schema.key, None)
        parts = [merger.replace(deleted), merger.write(changes)]
        staged, _ = clock.of("again", lambda: target.commit_merge(staged, parts, lambda _: staged.progress))  # noqa: B023
        staged = clock.of("again", lambda: target.publish(staged, schema, {}))  # noqa: B023
    return clock.seconds["again"] / _AGAIN


def splits_read(lower: Key | None, count: int, number: int, *, last: bool = False) -> tuple[Split, ...]:
    """So many splits from a key on, each with its own watermarks."""
    start = lower[0] if lower else 0
    assert isinstance(start, int)  # noqa: S101 - keys are numbers here
    end: Key | None = None if last else (start + count,)
    bounds: list[Key | None] = [lower, *((start + step,) for step in range(1, count)), end]
    marks = [1_000 + number + index for index in range(count)]
    return tuple(
        Split(KeyRange(low, high), GtidSet.parse(f"{_UUID}:1-{mark}"), Place(1, 1, mark))
        for low, high, mark in zip(bounds[:-1], bounds[1:], marks, strict=True)
    )


def _late_commits(target: Target, files: Written, waves: int) -> tuple[tuple[int, float], ...]:
    """The seconds of the commit of a wave of one chunk, as a table has had more and more of them."""
    schema = schema_of(9_999)
    staged, seconds = target.create(schema, created(schema)), []
    for number in range(waves):
        progress = staged.progress
        if len(progress.splits.all) >= MERGE_SPLITS:
            progress = normalised(progress, number)
        wave, written = splits_read(progress.splits.copied_up_to, 1, number), _renamed(files, 1)
        began = time.process_time()
        staged = target.commit_wave(staged, written, progress.wave_committed(wave, 1))
        seconds.append(time.process_time() - began)
    tenth = max(1, waves // 10)
    return tuple(
        (first + tenth, sum(seconds[first : first + tenth]) / tenth) for first in range(0, waves - tenth + 1, tenth)
    )


def _spool(folder: Path) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...], float, float]:
    """Segments of the spool: seconds to append, with a file for each table and for one; to find; memory of a file."""
    append, idle = list[tuple[int, float]](), list[tuple[int, float]]()
    find, entry = 0.0, 0.0
    for tables, segments in ((1, 1_000), (100, 200), (10_000, 100)):
        names = [TableId("benchmark", f"orders_{number:05}") for number in range(tables)]
        for changed, costs in ((tables, append), (1, idle)):
            spool, seconds = Spool.open(Local(folder / f"spool-{tables}-{changed}"), START), 0.0
            before = rss()
            for number in range(segments):
                manifest = _manifest(number, names, changed)
                began = time.process_time()
                spool.append([manifest])
                seconds += time.process_time() - began
            costs.append((tables, seconds / segments))
            del manifest
            if changed == tables:
                entry = max(0, rss() - before) / (tables * segments)
            if tables == 1:
                used = time.process_time()
                for _ in range(10):
                    spool.backlog(names[0], START.place)
                find = (time.process_time() - used) / 10 / segments
    return tuple(append), tuple(idle), find, entry


def _manifest(number: int, tables: Sequence[TableId], changed: int) -> Manifest:
    """The manifest of a segment, pickled by a task and unpickled by the driver. So it shares no names with others."""
    entries = {
        table: (f"data/{uuid.uuid4().hex}-{index}.parquet", 50) if index < changed else None
        for index, table in enumerate(tables)
    }
    start, stop = (FilePosition("binlog.000001", 4 + end * 100) for end in (number, number + 1))
    gtids = GtidSet.parse(f"{_UUID}:{2_000 + number}")
    sent = pickle.dumps(Manifest(start, stop, gtids, f"data/{uuid.uuid4().hex}-0.parquet", entries))
    return cast(Manifest, pickle.loads(sent))  # noqa: S301 - our own
