"""Data files are finished in threads of their own."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeingest.files import finishing as module
from lakeingest.files.file import Draft, File
from lakeingest.files.finishing import finishing
from lakeingest.files.local import Local


class Slow(Local):
    """A file that waits before it takes its draft."""

    __slots__ = ()
    waits: float = 0.2

    def take(self, draft: Path) -> None:
        """Wait, then take it."""
        time.sleep(self.waits)
        super().take(draft)


class Full(Local):
    """A file that has no room for its draft."""

    __slots__ = ()

    def take(self, draft: Path) -> None:  # noqa: ARG002
        """Fail."""
        raise OSError("no room")


def drafts(folder: File, names: Sequence[str]) -> list[Draft]:
    """Written drafts of files with these names."""
    found = [Draft.of(folder / name) for name in names]
    for draft in found:
        draft.path.write_bytes(b"rows")
    return found


def test_all_files_are_finished_at_the_end(any_folder: File) -> None:
    """Also if several threads hand them over; in a store nothing is left on this machine."""
    written = drafts(any_folder, [f"{number}.parquet" for number in range(100)])
    with finishing() as finish, ThreadPoolExecutor(4) as pool:
        list(pool.map(finish, written))
    assert [draft.file.read() for draft in written] == [b"rows"] * 100
    assert isinstance(any_folder, Path) or not any(draft.path.exists() for draft in written)


def test_files_are_finished_side_by_side_while_the_block_goes_on(tmp_path: Path) -> None:
    """Ten files that take 0.2 seconds each take much less than two seconds, and the block does not wait for them."""
    began = time.monotonic()
    with finishing() as finish:
        for draft in drafts(Slow(tmp_path), "abcdefghij"):
            finish(draft)
        handed_over = time.monotonic() - began
    took = time.monotonic() - began
    assert handed_over < Slow.waits
    assert Slow.waits <= took < 5 * Slow.waits


def test_too_many_unfinished_files_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two drafts, the third waits until one is finished."""
    monkeypatch.setattr(module, "_MOST_DRAFTS", 2)
    began = time.monotonic()
    with finishing() as finish:
        for draft in drafts(Slow(tmp_path), "abc"):
            finish(draft)
        assert time.monotonic() - began >= Slow.waits


def test_an_error_is_raised_at_the_end_of_the_block(tmp_path: Path) -> None:
    """The file before it is finished all the same."""
    [good], [bad] = drafts(Slow(tmp_path), ["good"]), drafts(Full(tmp_path), ["bad"])
    with pytest.raises(OSError, match="no room"), finishing() as finish:  # noqa: PT012 - the end of the block raises
        finish(good)
        finish(bad)
    assert good.file.exists()


def test_no_more_is_written_after_an_error(tmp_path: Path) -> None:
    """The next file that is handed over raises the error of an earlier one."""
    [bad] = drafts(Full(tmp_path), ["bad"])
    later = drafts(Local(tmp_path), [f"{number}" for number in range(1_000)])
    handed_over = 0
    with pytest.raises(OSError, match="no room"), finishing() as finish:  # noqa: PT012 - the block is what is tested
        finish(bad)
        for draft in later:
            time.sleep(0.001)
            finish(draft)
            handed_over += 1
    assert handed_over < len(later)
