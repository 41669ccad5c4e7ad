"""The lease of a pipeline, which only one run holds at a time.

lease.json   the process that holds the lease; the file's modification time is the time of the last renewal
lease.lock   locked only while a run reads and replaces lease.json; the kernel unlocks the file when a process dies

An object store has no locks. There, a run replaces lease.json only if the file has not changed since the run read it.
There, lease.json also stays when a run ends, because the `epoch` in it grows with each holder. Only the store's clock
measures the age of the last renewal.

A run can be suspended until another run has taken the lease. The suspended run notices that before its next
commit. If it was suspended within a commit, the commit's own assertions refuse the commit.
"""

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from lakeingest.core.figures.clocks import spoken
from lakeingest.errors import DAMAGED, LakeIngestError, LeaseHeld, LeaseLost
from lakeingest.files import file as files
from lakeingest.files.bucket import Seen
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from lakeingest.state import last_run, store

RENEW_SECONDS = 10.0  # the time between two renewals
VOID_SECONDS = 30.0  # the time after the last renewal when the lease expires
MARGIN_SECONDS = 2.0  # added to VOID_SECONDS in an object store, whose times can be whole seconds


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a lease.

    `boot` and `started` distinguish the process from others with the same `pid`; without /proc on the machine, they are
    None. `since` is the time when the process took the lease, for people.
    """

    token: str
    host: str
    pid: int
    boot: str | None
    started: int | None
    since: str

    @classmethod
    def of_this_process(cls) -> Self:
        """The owner for this process, with a new token."""
        pid, process = os.getpid(), _state_and_start(os.getpid())
        return cls(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=pid,
            boot=_boot_and_container(),
            started=process[1] if process else None,
            since=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        )

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`. Raises an error of `errors.DAMAGED` for another document."""
        return cls(
            token=str(doc["token"]),
            host=str(doc["host"]),
            pid=int(doc["pid"]),
            boot=doc["boot"],
            started=doc["started"],
            since=str(doc["since"]),
        )

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, since {self.since}"

    @property
    def has_ended(self) -> bool:
        """True if the process is known to have ended. False if it runs, or if that is not known.

        The end is known only of processes on this machine, in this container.
        """
        is_identified = None not in {self.boot, self.started}
        is_of_this_machine = (self.host, self.boot) == (socket.gethostname(), _boot_and_container())
        if not (is_identified and is_of_this_machine):
            return False
        try:
            os.kill(self.pid, 0)  # sends no signal, and raises an error if there is no such process
        except (ProcessLookupError, OverflowError):  # the second: the number is too large for any process
            return True
        except PermissionError:  # the process exists, and belongs to another user
            pass
        process = _state_and_start(self.pid)
        if process is None:  # not known
            return False
        state, started = process
        is_another = started != self.started  # the number was given again
        return is_another or state in "ZX"  # Z, X: zombie, dead


class Lease:
    """A lease that this run has taken. A thread of `held` renews it."""

    def __init__(self, path: File, token: str, taken: float) -> None:
        self._path = path
        self._token = token
        self._renewed = taken  # the time just before the last renewal was requested, by this process's clock

    def assert_held(self) -> None:
        """Raise LeaseLost unless this run still holds the lease, or a storage error if lease.json cannot be read."""
        if self._is_expired:
            raise LeaseLost(
                f"this run was paused, or could not renew {self._path}, for more than {VOID_SECONDS:.0f} s: "
                "another run may be at work; run the same command again"
            )
        with store.storage_errors(self._path, "used"):
            if not self._is_ours():
                raise LeaseLost(
                    f"{self._path} is no longer this run's: another run took over; run the same command again"
                )

    def renew_until(self, stop: threading.Event) -> None:
        """Renew the lease every 10 s until `stop` is set.

        An expired lease is not renewed any more, even if no other run has taken it.
        """
        while not stop.wait(RENEW_SECONDS) and not self._is_expired:
            before_request = time.monotonic()
            with suppress(OSError, LakeIngestError):  # the next try may succeed; otherwise the lease expires
                if self._renew():
                    self._renewed = before_request

    def release(self) -> None:
        """Give the lease back, unless another run took it. If that fails, no error is raised: the lease expires."""
        raise NotImplementedError

    def _renew(self) -> bool:
        """Renew the lease once. Returns False, and changes nothing, if another run has taken the lease."""
        raise NotImplementedError

    @property
    def _is_expired(self) -> bool:
        """Whether the last renewal is too old, by this process's clock."""
        return time.monotonic() - self._renewed > VOID_SECONDS

    def _is_ours(self) -> bool:
        """Whether lease.json names this run."""
        owner = _owner(self._path)
        return owner is not None and owner.token == self._token


class _LocalLease(Lease):
    """A lease on a disk. A renewal sets the modification time of lease.json."""

    _path: Local

    def release(self) -> None:
        with suppress(OSError), _locked(self._path):
            if self._is_ours():
                self._path.unlink()

    def _renew(self) -> bool:
        if is_ours := self._is_ours():
            os.utime(self._path)
        return is_ours


class _StoredLease(Lease):
    """A lease in an object store. A renewal replaces lease.json, if it is still the file that this run has `_seen`."""

    _path: Stored

    def __init__(self, path: Stored, doc: Mapping[str, Any], seen: Seen, taken: float) -> None:
        super().__init__(path, str(doc["token"]), taken)
        self._doc, self._seen = doc, seen

    def release(self) -> None:
        with suppress(OSError, LakeIngestError):
            self._path.put_if({**self._doc, "free": True}, self._seen)

    def _renew(self) -> bool:
        # `put_if` adds a nonce, so that the same document gets a new version and a new time
        written = self._path.put_if(self._doc, self._seen)
        if written is None:  # another run has replaced the file
            return False
        self._seen = written
        return True


@contextmanager
def held(folder: File) -> Iterator[Lease]:
    """Hold the lease of a pipeline within the block. `folder` is the pipeline's state folder, created if it is missing.

    Raises LeaseHeld if another run holds the lease. A lease expires 30 s after its last renewal, 32 s in a store. It
    expires at once if its process ran on this machine and has ended. An expired lease is taken over.
    """
    path = folder / "lease.json"
    with store.storage_errors(path, "used"):
        folder.make_folder(private=True)
        lease = _take_stored(path) if isinstance(path, Stored) else _take_local(Local(str(path)))
    stop = threading.Event()
    renewal = threading.Thread(target=lease.renew_until, args=(stop,), name="lease", daemon=True)
    renewal.start()
    try:
        yield lease
    finally:
        stop.set()
        renewal.join()
        lease.release()


def is_held(folder: File) -> bool:
    """Whether a run holds the lease of the pipeline now. Right afterwards, a run can take or release the lease."""
    path = folder / "lease.json"
    with store.storage_errors(path, "read"), suppress(FileNotFoundError):  # without lease.json no run holds the lease
        if isinstance(path, Stored):
            contents, seen = path.get()
            return _is_valid_stored(path, _parsed(contents), seen)
        return _is_valid(Local(str(path)), _owner(path))
    return False


def left_by(folder: File) -> Owner | None:
    """The process that held the lease last, if it ended without giving the lease back, as a killed one does.

    None if a run holds the lease, if the last one gave it back, or if lease.json is damaged. Right afterwards, a run
    can take the lease.
    """
    path = folder / "lease.json"
    with store.storage_errors(path, "read"), suppress(FileNotFoundError):
        if isinstance(path, Stored):
            contents, seen = path.get()
            doc = _parsed(contents)
            is_left = not doc.get("free") and not _is_valid_stored(path, doc, seen)
            return _owner_of(doc) if is_left else None
        owner = _owner(path)
        return None if _is_valid(Local(str(path)), owner) else owner
    return None


def _is_valid(path: Local, owner: Owner | None) -> bool:
    """Whether a run may still hold a lease on a disk: the lease has not expired, and its process may still run.

    A lease has also expired if its last renewal is more than 30 s in the future: then a clock was set back. `owner` is
    None if lease.json is damaged: then only the time of the renewal counts.
    """
    is_expired = abs(_now(path) - path.stat().st_mtime) > VOID_SECONDS
    if is_expired:
        return False
    return owner is None or not owner.has_ended


def _is_valid_stored(path: Stored, doc: Mapping[str, Any], seen: Seen) -> bool:
    """Whether a run may still hold a lease in an object store.

    That is so if the lease is not released and has not expired, and its process may still run. `doc` is the document in
    lease.json; `seen` has the time of the last renewal.
    """
    owner = _owner_of(doc)
    if doc.get("free") or (owner and owner.has_ended):
        return False
    return path.parent.now() - seen.changed.timestamp() <= VOID_SECONDS + MARGIN_SECONDS


def _take_local(path: Local) -> Lease:
    """Take the lease of a local folder. Raises LeaseHeld if another run holds it."""
    with _locked(path):
        with suppress(FileNotFoundError):  # from `_is_valid`: there is no lease.json
            owner = _owner(path)
            if _is_valid(path, owner):
                raise _error_held_by(path, owner)
        this_process = Owner.of_this_process()
        taken = time.monotonic()  # before the write: the lease must not seem younger than it is
        store.replace(path, asdict(this_process))
        return _LocalLease(path, this_process.token, taken)


def _take_stored(path: Stored) -> Lease:
    """Take the lease in an object store. Raises LeaseHeld if another run holds it, or takes it at the same time."""
    try:
        contents, seen = path.get()
    except FileNotFoundError:
        last_doc: Mapping[str, Any] = {}
        last_seen = None  # so that `put_if` makes a new file, and replaces none
    else:
        last_doc, last_seen = _parsed(contents), seen
        if _is_valid_stored(path, last_doc, seen):
            raise _error_held_by(path, _owner_of(last_doc))
    our_doc = {**asdict(Owner.of_this_process()), "epoch": _epoch_of(last_doc) + 1, "free": False}
    taken = time.monotonic()  # before the request: the lease must not seem younger than it is
    if (written := path.put_if(our_doc, last_seen)) is None:  # another run took the lease since `path.get`
        raise _error_held_by(path, _owner(path))
    return _StoredLease(path, our_doc, written, taken)


def _epoch_of(doc: Mapping[str, Any]) -> int:
    """How often the lease was taken, as its document counts it; 0 for a damaged document."""
    epoch = doc.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def _error_held_by(path: File, owner: Owner | None) -> LeaseHeld:
    """The error for a lease that another run holds; `owner` is None if lease.json does not name the run."""
    who = f"{owner}{_progress_of(path.parent, owner)}" if owner else f"{path} does not say which"
    return LeaseHeld(
        f"another run of this pipeline is at work: {who}; run the same command again when it has ended "
        f"({VOID_SECONDS:.0f} s later, if it was killed on another machine)"
    )


def _progress_of(folder: File, owner: Owner) -> str:
    """A clause about when the run last recorded progress; '' if nothing is recorded."""
    at = last_run.last_progress(folder, owner.host, owner.pid)
    if at is None:
        return ""
    ago = max(0.0, (datetime.now(UTC) - at).total_seconds())
    return f", last progress at {at:%Y-%m-%d %H:%M:%S} UTC, {spoken(ago)} ago"


def _owner(path: File) -> Owner | None:
    """The owner that lease.json names; None if there is no lease.json, or if it is damaged."""
    try:
        return _owner_of(_parsed(path.read()))
    except FileNotFoundError:
        return None


def _owner_of(doc: Mapping[str, Any]) -> Owner | None:
    """The owner that the document of lease.json names; None if the document is damaged."""
    try:
        return Owner.from_json(doc)
    except DAMAGED:
        return None


def _parsed(contents: bytes) -> Mapping[str, Any]:
    """The document in lease.json; an empty one if it is damaged."""
    try:
        doc = files.parsed(contents)
    except ValueError:
        return {}
    return doc if isinstance(doc, dict) else {}


def _now(path: Path) -> float:
    """The present time by the clock that sets the modification times of files in the folder of the lease.

    In a folder on a network it is the clock of another machine.
    """
    lock = path.with_suffix(".lock")
    try:
        os.utime(lock)
        return lock.stat().st_mtime
    except OSError:  # no run has made the file yet, or the folder is read-only
        return time.time()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let no other run read or replace lease.json within the block.

    Without the lock, two runs could both find an expired lease, and the later run could replace the fresh lease of the
    other.
    """
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _boot_and_container() -> str | None:
    """The scope in which process numbers are unique: this boot of the machine, and this container.

    None on a machine without /proc: there, no process is known to have ended.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """The state of a process, and its start in ticks since the boot; None if /proc does not have the process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # fields 1 and 2 are cut off, because the name of the process can have any characters: `(name)`
    fields_from_third = stat.rpartition(")")[2].split()
    return fields_from_third[0], int(fields_from_third[19])  # field 22: the start
