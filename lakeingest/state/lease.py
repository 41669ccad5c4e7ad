"""The lease: one run at a time works on a pipeline.

lease.json   who holds it; its modification time is the last renewal
lease.lock   locked only while lease.json is read and replaced; the kernel unlocks it when a process dies

An object store has no lock: lease.json is replaced only if it has not changed since it was read. It stays when a run
ends, so that its `epoch` grows with each holder. Only the store's clock measures its age.

The lease separates cooperating runs. A run that was paused until another one took over notices that before its next
commit. If it was paused within a commit, the assertions of the commit refuse it.
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

from lakeingest.errors import DAMAGED, LakeIngestError, LeaseHeld, LeaseLost
from lakeingest.files import file as files
from lakeingest.files.bucket import Seen
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from lakeingest.state import store

RENEW_SECONDS = 10.0
VOID_SECONDS = 30.0
MARGIN_SECONDS = 2.0  # a store may give times in whole seconds


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a lease.

    `boot` and `started` distinguish it from other processes with the same number; they are None without /proc.
    """

    token: str
    host: str
    pid: int
    boot: str | None
    started: int | None
    since: str

    @classmethod
    def of_this_process(cls) -> Self:
        """A new owner with a new token."""
        pid, process = os.getpid(), _process(os.getpid())
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return cls(uuid.uuid4().hex, socket.gethostname(), pid, _boot(), process[1] if process else None, since)

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`."""
        return cls(str(doc["token"]), str(doc["host"]), int(doc["pid"]), doc["boot"], doc["started"], str(doc["since"]))

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended; False for a process that cannot be seen from here."""
        if None in {self.boot, self.started} or (self.host, self.boot) != (socket.gethostname(), _boot()):
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:  # it exists and belongs to another user
            pass
        process = _process(self.pid)
        return process is not None and (process[0] in "ZX" or process[1] != self.started)


class Lease:
    """A lease that this run has taken; `held` renews it."""

    def __init__(self, path: File, token: str, taken: float) -> None:
        self._path = path
        self._token = token
        self._renewed = taken  # this process's clock just before the last request that renewed it

    def assert_held(self) -> None:
        """Raises LeaseLost unless this run still holds the lease. To be called before every commit."""
        if self._void:
            raise LeaseLost(
                f"this run was paused, or could not renew {self._path}, for more than {VOID_SECONDS:.0f} s: "
                "another run may be at work; run the same command again"
            )
        with store.storage_errors(self._path, "used"):
            if not self._ours():
                raise LeaseLost(
                    f"{self._path} is no longer this run's: another run took over; run the same command again"
                )

    def renew_until(self, stop: threading.Event) -> None:
        """Renew the lease until `stop` is set. An expired lease is not renewed, even if no other run took it."""
        while not stop.wait(RENEW_SECONDS) and not self._void:
            now = time.monotonic()
            with suppress(OSError, LakeIngestError):  # a disk or a store that stays unavailable lets the lease expire
                if self._renew():
                    self._renewed = now

    def release(self) -> None:
        """Let the next run begin at once. A lease that another run took stays."""
        raise NotImplementedError

    def _renew(self) -> bool:
        """Renew the lease once. False, and nothing is changed, if it is not this run's."""
        raise NotImplementedError

    @property
    def _void(self) -> bool:
        return time.monotonic() - self._renewed > VOID_SECONDS

    def _ours(self) -> bool:
        owner = _owner(self._path)
        return owner is not None and owner.token == self._token


class _LocalLease(Lease):
    _path: Local

    def release(self) -> None:
        with suppress(OSError), _locked(self._path):  # the lease expires with the process anyway
            if self._ours():
                self._path.unlink()

    def _renew(self) -> bool:
        if ours := self._ours():
            os.utime(self._path)
        return ours


class _StoredLease(Lease):
    _path: Stored

    def __init__(self, path: Stored, doc: Mapping[str, Any], seen: Seen, taken: float) -> None:
        super().__init__(path, str(doc["token"]), taken)
        self._doc, self._seen = doc, seen

    def release(self) -> None:
        with suppress(OSError, LakeIngestError):
            self._path.put_if({**self._doc, "free": True}, self._seen)

    def _renew(self) -> bool:
        put = self._path.put_if(self._doc, self._seen)  # a nonce makes a new version of the same document
        self._seen = put or self._seen
        return put is not None


@contextmanager
def held(folder: File) -> Iterator[Lease]:
    """Hold the lease of the pipeline whose state is in `folder`, which is created if it is missing.

    Raises LeaseHeld while another run holds it. A lease expires 30 s after its last renewal, or at once if its process
    was on this machine and has ended. Then the next run takes it over.
    """
    path = folder / "lease.json"
    with store.storage_errors(path, "used"):
        folder.make_folder(private=True)
        lease = _take_stored(path) if isinstance(path, Stored) else _take(Local(str(path)))
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
    """Whether a run holds the lease of the pipeline now. That may change the next moment."""
    path = folder / "lease.json"
    with store.storage_errors(path, "read"), suppress(FileNotFoundError):
        if isinstance(path, Stored):
            contents, seen = path.get()
            return _is_valid_stored(path, _parsed(contents), seen)
        return _is_valid(Local(str(path)), _owner(path))
    return False


def _is_valid(path: Local, owner: Owner | None) -> bool:
    """Whether the lease was renewed lately, and its process has not ended as far as can be seen.

    A renewal time far in the future does not count as lately: a clock was set back after it.
    """
    return abs(_now(path) - path.stat().st_mtime) <= VOID_SECONDS and not (owner and owner.gone)


def _is_valid_stored(path: Stored, doc: Mapping[str, Any], seen: Seen) -> bool:
    owner = _owner_of(doc)
    if doc.get("free") or (owner and owner.gone):
        return False
    return path.parent.now() - seen.changed.timestamp() <= VOID_SECONDS + MARGIN_SECONDS


def _take(path: Local) -> Lease:
    """Take the lease of a local folder. Raises LeaseHeld while another run holds it."""
    with _locked(path):
        with suppress(FileNotFoundError):
            owner = _owner(path)
            if _is_valid(path, owner):
                raise _held_by(path, owner)
        mine = Owner.of_this_process()
        lease = _LocalLease(path, mine.token, time.monotonic())
        store.replace(path, asdict(mine))
        return lease


def _take_stored(path: Stored) -> Lease:
    """Take the lease in an object store, which gives it to one of several runs that find it free. Raises LeaseHeld."""
    try:
        contents, seen = path.get()
    except FileNotFoundError:
        last: Mapping[str, Any] = {}
        last_seen = None
    else:
        last, last_seen = _parsed(contents), seen
        if _is_valid_stored(path, last, seen):
            raise _held_by(path, _owner_of(last))
    mine = {**asdict(Owner.of_this_process()), "epoch": int(last.get("epoch", 0)) + 1, "free": False}
    taken = time.monotonic()  # before the request: the lease must not seem younger than it is
    if (put := path.put_if(mine, last_seen)) is None:
        raise _held_by(path, _owner(path))
    return _StoredLease(path, mine, put, taken)


def _held_by(path: File, owner: Owner | None) -> LeaseHeld:
    who = f"pid {owner.pid} on {owner.host}, since {owner.since}" if owner else f"{path} does not say which"
    return LeaseHeld(
        f"another run of this pipeline is at work: {who}; run the same command again when it has ended "
        f"({VOID_SECONDS:.0f} s later, if it was killed on another machine)"
    )


def _owner(path: File) -> Owner | None:
    """The holder of the lease; None if there is no lease, or its file is unreadable: then only its age counts."""
    try:
        return _owner_of(_parsed(path.read()))
    except FileNotFoundError:
        return None


def _owner_of(doc: Mapping[str, Any]) -> Owner | None:
    try:
        return Owner.from_json(doc)
    except DAMAGED:
        return None


def _parsed(contents: bytes) -> Mapping[str, Any]:
    """The document of a lease; an empty one if it is unreadable."""
    try:
        doc = files.parsed(contents)
    except ValueError:
        return {}
    return doc if isinstance(doc, dict) else {}


def _now(path: Path) -> float:
    """The time by the clock that sets the times of files in the lease's folder. It may be another machine's clock."""
    lock = path.with_suffix(".lock")
    try:
        os.utime(lock)
        return lock.stat().st_mtime
    except OSError:  # no run was here yet, or the folder is read-only
        return time.time()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """No other run reads or replaces the lease within the block.

    If a run renamed an expired lease away instead, a late run could rename a fresh lease away, and a third run take it.
    """
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _boot() -> str | None:
    """The scope of process numbers: this boot of the machine, and this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _process(pid: int) -> tuple[str, int] | None:
    """A process's state, and its start in ticks since the boot; None for a process that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name, in parentheses, may hold anything
    return fields[0], int(fields[19])
