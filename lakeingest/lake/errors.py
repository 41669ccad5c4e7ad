"""What the lake is kept on can fail: errors of files, SQLite, PyArrow, PyIceberg and the JVM get one of our names."""

import functools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import ValidationError
from sqlalchemy.exc import DBAPIError, IntegrityError

from lakeingest.errors import LakeIngestError, Retryable, StaleWriter, StateUnreadable, StorageFailed
from lakeingest.lake.iceberg.projection import NotProjectable
from lakeingest.lake.target import Target

_ICEBERG = "org.apache.iceberg.exceptions."
_REFUSED = {
    *(_ICEBERG + name for name in ("CommitFailedException", "CommitStateUnknownException", "ValidationException")),
    "java.nio.channels.OverlappingFileLockException",  # by another thread of this process
}


Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Format = TypeVar("Format", bound=Target)


def names_storage_errors(
    method: Callable[Concatenate[Format, Given], Answer],
) -> Callable[Concatenate[Format, Given], Answer]:
    """A method of a target with what fails in its storage under our names."""

    @functools.wraps(method)
    def named(self: Format, /, *given: Given.args, **options: Given.kwargs) -> Answer:
        with self.storage_errors():
            return method(self, *given, **options)

    return named


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Name what fails while the files in `where` and the `catalog` of them are read and written.

    StorageFailed: no space, no permission, a broken disk or database. StateUnreadable: a file is gone or damaged.
    Retryable: another process holds the catalog, or commits to the same table, or memory is short. Everything else
    passes as it is.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except (FileNotFoundError, EOFError, UnicodeDecodeError, ValidationError) as error:
        raise unreadable(where, str(error)) from error
    except OSError as error:
        raise _failed(where, error.strerror or str(error)) from error
    except DBAPIError as error:
        if isinstance(error, IntegrityError):
            raise _held(catalog) from error
        raise _of_database(catalog, str(error.orig)) from error
    except MemoryError as error:
        raise Retryable(
            f"{where}: memory is short: {error}; give the run more, then run the same command again"
        ) from error
    except Exception as error:
        if _is_of_avro(error):
            raise unreadable(where, f"a manifest: {type(error).__name__}: {error}") from error
        # what PySpark did not translate, and what it did
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        named = None if java is None else _of_jvm(_causes(java), where, catalog)
        if named is None:
            raise
        raise named from error


@contextmanager
def parsed(path: str) -> Iterator[None]:
    """Name what PyArrow says of the contents of a file of the lake, which it reads within the block: StateUnreadable.

    What the file system says of it, and a lack of memory, is for `storage_errors`.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, NotProjectable) as error:
        raise unreadable(path, str(error)) from error
    except OSError as error:
        if error.errno is not None:  # without a number it is PyArrow's: the contents make no sense
            raise
        raise unreadable(path, str(error)) from error


def _is_of_avro(error: Exception) -> bool:
    """Whether PyIceberg was reading a manifest, or a list of them: a damaged one makes it raise almost anything."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_globals.get("__name__") == AvroFile.__module__
        and "self" in frame.f_locals
        and isinstance(frame.f_locals["self"], AvroFile)
        for frame in frames
    )


def _of_jvm(causes: Iterable[tuple[set[str], str]], where: Path | str, catalog: Path | str) -> LakeIngestError | None:
    """The name of a chain of causes, None when it is no matter of storage: the outermost that is one decides."""
    iceberg = None
    for kinds, told in causes:
        if kinds & _REFUSED:
            return StaleWriter(f"{where}: another writer commits at the same time; run the same command again")
        unpacked = re.search(r"Cannot unpack [^[]*", told)
        if "java.lang.UnsatisfiedLinkError" in kinds or unpacked:
            reason = unpacked[0].strip() if unpacked else told
            return _failed("the folder that Java unpacks libraries into (java.io.tmpdir)", reason)
        if "java.sql.SQLException" in kinds:
            return _of_database(catalog, told)
        if "java.io.FileNotFoundException" in kinds and ("does not exist" in told or "No such file" in told):
            return unreadable(where, told)
        if any(kind.startswith(_ICEBERG) for kind in kinds):
            iceberg = told
        if any(kind.endswith("EOFException") for kind in kinds):
            return None if iceberg is None else unreadable(where, iceberg)  # None: a Python worker has died
        if "java.io.IOException" in kinds and not any(kind.startswith("java.net.") for kind in kinds):
            return _failed(f"{where}, or a folder that Spark works in,", told)
    return None


def _causes(java: Any) -> Iterator[tuple[set[str], str]]:
    """Of a Java exception and its causes: the names of its class and those above it, and its message's first line."""
    while java is not None:
        kinds, kind = set(), java.getClass()
        while kind is not None:
            kinds.add(str(kind.getName()))
            kind = kind.getSuperclass()
        yield kinds, str(java.getMessage()).partition("\n")[0]
        java = java.getCause()


def _of_database(catalog: Path | str, told: str) -> LakeIngestError:
    # two processes that open a new catalog both make its tables
    return _held(catalog) if "locked" in told or "already exists" in told else _failed(catalog, told)


def _held(catalog: Path | str) -> Retryable:
    return Retryable(f"{catalog} is held by another process; run the same command again")


def _failed(what: Path | str, told: str) -> StorageFailed:
    return StorageFailed(
        f"{what} cannot be read or written: {told}; make room or repair it, then run the same command again"
    )


def unreadable(where: Path | str, told: str) -> StateUnreadable:
    """The error for a file that is gone, or that does not hold what it should."""
    return StateUnreadable(
        f"{where}: a file is gone or damaged: {' '.join(told.split())}; restore it, or drop the table to copy it again"
    )
