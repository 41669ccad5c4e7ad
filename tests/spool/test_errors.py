"""Failures of the spool are named as failures of the state folder, never as those of the lake."""

import pytest

from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import LakeIngestError, Retryable, StateUnreadable, StorageFailed
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.segment_files import SegmentFiles

SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", Kind.INT32, source_type("int")),), ("id",))


def refusal(folder: Local, error: type[LakeIngestError]) -> str:
    """The message with which a task is refused that opens files in this folder."""
    with pytest.raises(error) as raised, spool_errors(folder), SegmentFiles(folder, {SCHEMA.table: SCHEMA}):
        pass
    return str(raised.value)


def test_a_missing_folder_of_the_spool_does_not_cost_a_table(tmp_path: Local) -> None:
    """The message says to remove the spool, which is filled again; it says nothing about the copies in the lake."""
    message = refusal(tmp_path / "spool", StateUnreadable)
    assert message.startswith(f"the spool in {tmp_path / 'spool'} lacks a folder or a file: ")
    assert message.endswith("; remove the folder and run again")
    assert "drop" not in message
    assert "\n" not in message


def test_a_spool_that_cannot_be_written_is_named_as_the_state_folder(tmp_path: Local) -> None:
    """A file is in the place of a folder: the message names the path and how to go on."""
    (tmp_path / "data").touch()
    message = refusal(tmp_path, StorageFailed)
    assert message.startswith(f"the state folder cannot be written: {tmp_path}: ")
    assert message.endswith("run the same command again")


def test_too_little_memory_can_be_tried_again(tmp_path: Local) -> None:
    """The run ends with exit code 75, and the message asks for more memory."""
    with pytest.raises(Retryable, match="memory is short"), spool_errors(tmp_path):
        raise MemoryError("malloc of 64 bytes failed")


def test_a_broken_connection_passes_unchanged(tmp_path: Local) -> None:
    """It is a failure of the source, which the same block reads: the source's edge names it."""
    with pytest.raises(BrokenPipeError), spool_errors(tmp_path):
        raise BrokenPipeError
