"""The tasks of executors in a wave: read a chunk between its watermarks and write it; read a segment of the binlog."""

import time
from dataclasses import dataclass

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.proofs.witness import ChunkLook, Looked
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk, Cost
from lakeingest.core.waves.splits import Split
from lakeingest.errors import of_pipeline, of_table
from lakeingest.lake.target import Writer, Written
from lakeingest.mysql.chunk_reader import Cap, SecondLook, read_chunk, read_stable
from lakeingest.pipeline.binlog.second_look import disagreement
from lakeingest.pipeline.binlog.segment_task import Decoded, SpoolSegment
from lakeingest.pipeline.run.pickled_once import PickledOnce
from lakeingest.pipeline.run.profile import Profile, StageCost
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.rows import with_read_metadata

STAGE = "chunks: second decoder"  # a part of the stage `chunks: read`


@dataclass(frozen=True, slots=True)
class Copied:
    """A chunk that an executor has copied: its files, to which no table refers yet, their rows, and its split.

    `sound`: the rows were checked and agree with the table's definition. `looked`: what the second decoder compared.
    """

    files: Written
    rows: int
    split: Split
    high: FilePosition
    cost: Cost
    sound: bool
    nulled: int
    looked: Looked
    profile: Profile


@dataclass(frozen=True, slots=True)
class Copying:
    """What the tasks of a wave share: where they read, and how they write.

    `settled`: a position; each chunk's read view contains each XA COMMIT before it (`binlog.watermarks`).
    """

    source: Source
    schema: TableSchema
    server_uuid: str
    epoch: int
    settled: FilePosition
    cap: Cap
    writer: Writer


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """The task of one executor: read a chunk between its watermarks, write it to files."""

    wave: PickledOnce[Copying]
    chunk: Chunk
    look: ChunkLook

    def run(self) -> Copied:
        """Copy the chunk. If the read is tried again, rows and watermarks come from the same attempt.

        Raises DecodersDisagree if the second decoder has read another row.
        """
        began, profile, wave = time.monotonic(), Profile(), self.wave.value
        with profile.stage("chunks: read"):
            what = wave.source, wave.schema, self.chunk, wave.server_uuid, wave.epoch
            # maybe several attempts
            read = read_stable(lambda: read_chunk(*what, cap=wave.cap, settled=wave.settled, look=self.look))
        seconds = time.monotonic() - began
        looked = Looked()
        if read.second_look is not None:
            seconds -= read.second_look.wall  # later chunks are sized by what the read alone has cost
            looked = self._looked(read.second_look)
            profile.note(StageCost(STAGE, 1, read.second_look.wall, read.second_look.cpu))
        cost = Cost(read.seen.rows, read.seen.bytes, seconds)
        with profile.stage("chunks: look"):
            rows = with_read_metadata(read.rows, wave.schema, read.high.place(wave.epoch))
            sound = is_sound(default_suite(wave.schema, rows.num_rows), rows)
        with profile.stage("chunks: write"):
            files = wave.writer.write(rows)
        return Copied(files, rows.num_rows, read.split, read.high, cost, sound, read.nulled, looked, profile)

    def _looked(self, look: SecondLook) -> Looked:
        """What the second decoder has compared. Raises DecodersDisagree for the first difference."""
        for difference in look.compared.differences[:1]:  # the error names the first one alone
            raise disagreement(difference, masked=self.look.masked)
        return Looked(look.compared.rows, look.compared.unread, look.cpu, self.look.is_sample)


def run_task(task: CopyChunk | SpoolSegment) -> Copied | Decoded:
    """Run the task. An error of a chunk concerns its table alone; an error of a segment concerns the whole pipeline."""
    if isinstance(task, CopyChunk):
        with of_table():
            return task.run()
    with of_pipeline():
        return task.run()
