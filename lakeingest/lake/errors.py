"""Failures of the lake's storage: errors of files, PyArrow and the JVM, as errors of lakeingest."""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from lakeingest.errors import (
    CatalogAway,
    LakeIngestError,
    Retryable,
    StaleWriter,
    StateUnreadable,
    StorageAway,
    StorageFailed,
)
from lakeingest.lake.target import Tables

_ICEBERG = "org.apache.iceberg.exceptions."
_REFUSED = {
    *(_ICEBERG + name for name in ("CommitFailedException", "CommitStateUnknownException", "ValidationException")),
    "java.nio.channels.OverlappingFileLockException",  # held by another thread of this process
}
_FORBIDDEN = {_ICEBERG + name for name in ("NotAuthorizedException", "ForbiddenException", "BadRequestException")}
_STORE = "AWS Error "  # PyArrow's message about an object store's answer begins so, in an OSError without a number
_AWAY = re.compile(
    _STORE + r"(NETWORK_CONNECTION|SLOW_DOWN|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|THROTTLING|REQUEST_TIMEOUT"
    r"|UNKNOWN \(HTTP status (429|5\d\d)\))"
)
_OF_STORE = "software.amazon.awssdk.", "org.apache.hadoop.fs.s3a.AWS"  # Iceberg's client of S3, and Hadoop's
_THRIFT = "org.apache.thrift.transport.TTransportException"
_METASTORE = {
    "org.apache.hadoop.hive.metastore.api." + name
    for name in ("MetaException", "InvalidObjectException", "InvalidOperationException")
}
_OF_METASTORES_DATABASE = re.compile(r"JDO|SQLException|TransactionException|[Tt]imed? ?out|[Dd]eadlock")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Format = TypeVar("Format", bound=Tables)


def names_storage_errors(
    method: Callable[Concatenate[Format, Given], Answer],
) -> Callable[Concatenate[Format, Given], Answer]:
    """Decorate a method of a target: a failure of its storage is raised as one of our errors."""

    @functools.wraps(method)
    def wrapper(self: Format, /, *arguments: Given.args, **options: Given.kwargs) -> Answer:
        with self.storage_errors():
            return method(self, *arguments, **options)

    return wrapper


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Raise a failure of the block, which reads and writes the files in `where` and their `catalog`, as our error.

    Every other error passes unchanged.

    Raises:
        StorageFailed: no space, no permission, a broken disk or database.
        StateUnreadable: a file is gone or damaged.
        Retryable: another process holds the catalog, or memory is short.
        CatalogAway: the server of the catalog does not answer, or fails.
        StorageAway: the object store does not answer, or fails.
        StaleWriter: another writer commits to the same table.

    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except (FileNotFoundError, EOFError, UnicodeDecodeError) as error:
        raise unreadable(where, str(error)) from error
    except OSError as error:
        message = error.strerror or " ".join(str(error).split())
        raise (_store_away if _AWAY.search(message) else _failed)(where, message) from error
    except MemoryError as error:
        raise Retryable(
            f"{where}: memory is short: {error}; give the run more, then run the same command again"
        ) from error
    except Exception as error:
        # `java_exception` is set if PySpark did not translate the exception, `_origin` if it did
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        ours = None if java is None else _of_jvm(_causes(java), where, catalog)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def parsed(path: str) -> Iterator[None]:
    """Raises StateUnreadable if PyArrow cannot make sense of the file of the lake that the block reads.

    Errors of the file system, and a lack of memory, are left to `storage_errors`.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise unreadable(path, str(error)) from error
    except OSError as error:
        if error.errno is not None or _STORE in str(error):  # an error of PyArrow about the contents has no number
            raise
        raise unreadable(path, str(error)) from error


def _of_jvm(causes: Iterable[tuple[set[str], str]], where: Path | str, catalog: Path | str) -> LakeIngestError | None:
    """Our error for a chain of causes, by the outermost cause that is a failure of storage; None if none is."""
    iceberg = None
    for kinds, message in causes:
        if kinds & _REFUSED:
            return StaleWriter(f"{where}: another writer commits at the same time; run the same command again")
        unpacked = re.search(r"Cannot unpack [^[]*", message)
        if "java.lang.UnsatisfiedLinkError" in kinds or unpacked:
            reason = unpacked[0].strip() if unpacked else message
            return _failed("the folder that Java unpacks libraries into (java.io.tmpdir)", reason)
        if answered := _of_server(kinds, message, where, catalog):
            return answered
        if "java.io.FileNotFoundException" in kinds and ("does not exist" in message or "No such file" in message):
            return unreadable(where, message)
        if any(kind.startswith(_ICEBERG) for kind in kinds):
            iceberg = message
        if any(kind.endswith("EOFException") for kind in kinds):
            return None if iceberg is None else unreadable(where, iceberg)  # None: a Python worker died
        if "java.io.IOException" in kinds and not any(kind.startswith("java.net.") for kind in kinds):
            return _failed(f"{where}, or a folder that Spark works in,", message)
    return None


def _of_server(kinds: set[str], message: str, where: Path | str, catalog: Path | str) -> LakeIngestError | None:
    """Our error for a failure that a catalog's server, or the object store, reports; None if neither does."""
    if "java.sql.SQLException" in kinds:
        return of_database(catalog, message)
    if _ICEBERG + "RESTException" in kinds:
        return refused(catalog, message) if kinds & _FORBIDDEN else away(catalog, message)
    if _THRIFT in kinds:
        return away(catalog, message)
    if kinds & _METASTORE:
        return (away if "Could not connect" in message else refused)(catalog, message)
    if any(kind.startswith(_OF_STORE) for kind in kinds):
        status = re.search(r"Status Code: (\d+)", message)
        if status is None or re.fullmatch(r"429|5\d\d", status[1]):  # without a status there was no answer
            return _store_away(where, message)
        return (unreadable if status[1] == "404" else _failed)(where, message)
    return None


def _causes(java: Any) -> Iterator[tuple[set[str], str]]:
    """The names of the classes, and the first line of the message, of a Java exception and each of its causes."""
    while java is not None:
        kinds, kind = set(), java.getClass()
        while kind is not None:
            kinds.add(str(kind.getName()))
            kind = kind.getSuperclass()
        yield kinds, str(java.getMessage()).partition("\n")[0]
        java = java.getCause()


def of_database(catalog: Path | str, message: str) -> LakeIngestError:
    """The error for a message of a catalog's database."""
    # two processes that open a new catalog at the same time both create its tables
    if "locked" in message or "already exists" in message:
        return held(catalog)
    if "certificate" in message or "SSL" in message:
        message += "; sslmode and sslrootcert in target.catalog.uri say how the server proves who it is"
    return _failed(catalog, message)


def of_metastore(catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """The error for a failure that Hive's metastore or its client reports; None for other errors."""
    library = sys.modules.get("thrift.Thrift")
    if library is None or not isinstance(error, library.TException):
        return None
    transport = sys.modules["thrift.transport.TTransport"]
    # the metastore also reports an error of its database as a MetaException
    is_away = isinstance(error, transport.TTransportException | library.TApplicationException) or (
        type(error).__name__ == "MetaException" and _OF_METASTORES_DATABASE.search(str(error))
    )
    return (away if is_away else refused)(catalog, f"{type(error).__name__}: {' '.join(str(error).split())}")


def held(catalog: Path | str) -> Retryable:
    """The error for a catalog that another process holds."""
    return Retryable(f"{catalog} is held by another process; run the same command again")


def away(catalog: Path | str, message: str) -> CatalogAway:
    """The error for a catalog whose server does not answer, or fails."""
    return CatalogAway(f"{catalog} does not answer, or fails: {message}; run the same command again")


def refused(catalog: Path | str, message: str) -> StorageFailed:
    """The error for a catalog whose server denies access."""
    return StorageFailed(f"{catalog} refuses: {message}; correct target.catalog, or the rights there")


def _store_away(store: Path | str, message: str) -> StorageAway:
    return StorageAway(f"{store}: the store does not answer, or fails: {message}; run the same command again")


def _failed(what: Path | str, message: str) -> StorageFailed:
    return StorageFailed(
        f"{what} cannot be read or written: {message}; make room or repair it, then run the same command again"
    )


def unreadable(where: Path | str, message: str) -> StateUnreadable:
    """The error for a file that is gone or damaged."""
    return StateUnreadable(
        f"{where}: a file is gone or damaged: {' '.join(message.split())}; restore it, or drop the table to copy it"
        " again"
    )
