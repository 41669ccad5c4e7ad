"""The errors of lakeingest for failures of the lake's storage that files, PyArrow and the JVM report."""

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
_COMMIT_REFUSED = {
    *(_ICEBERG + name for name in ("CommitFailedException", "CommitStateUnknownException", "ValidationException")),
    "java.nio.channels.OverlappingFileLockException",  # another thread of this process holds the lock
}
# with these, the catalog's server denies access, or refuses the request
_ACCESS_DENIED = {_ICEBERG + name for name in ("NotAuthorizedException", "ForbiddenException", "BadRequestException")}
_STORE_ERROR = "AWS Error "  # in PyArrow's message of an object store's error, an OSError without a number
_STORE_AWAY = re.compile(
    _STORE_ERROR + r"(NETWORK_CONNECTION|SLOW_DOWN|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|THROTTLING|REQUEST_TIMEOUT"
    r"|UNKNOWN \(HTTP status (429|5\d\d)\))"
)
_STORE_CLIENTS = "software.amazon.awssdk.", "org.apache.hadoop.fs.s3a.AWS"  # Iceberg's client of S3, and Hadoop's
_THRIFT = "org.apache.thrift.transport.TTransportException"
_METASTORE = {
    "org.apache.hadoop.hive.metastore.api." + name
    for name in ("MetaException", "InvalidObjectException", "InvalidOperationException")
}
_METASTORE_DATABASE = re.compile(r"JDO|SQLException|TransactionException|[Tt]imed? ?out|[Dd]eadlock")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Format = TypeVar("Format", bound=Tables)


def names_storage_errors(
    method: Callable[Concatenate[Format, Given], Answer],
) -> Callable[Concatenate[Format, Given], Answer]:
    """Decorate a method of a target: the method then raises failures of the target's storage as our errors."""

    @functools.wraps(method)
    def wrapper(self: Format, /, *arguments: Given.args, **options: Given.kwargs) -> Answer:
        with self.storage_errors():
            return method(self, *arguments, **options)

    return wrapper


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Raise a storage failure in the block as an error of ours. Every other error passes unchanged.

    ConnectionError and TimeoutError are such others. `where` are the files that the block reads and writes, and
    `catalog` is their catalog.

    Raises:
        StorageFailed: no space, no permission, a broken disk or database, or a server that refuses the request.
        StateUnreadable: a file is gone or damaged.
        Retryable: another process holds the catalog, or memory is short.
        CatalogAway: the server of the catalog does not answer, or fails.
        StorageAway: the object store does not answer, or fails.
        StaleWriter: another writer commits to the same table.

    """
    try:
        yield
    except (ConnectionError, TimeoutError):  # OSErrors, but no failures of the storage
        raise
    except (FileNotFoundError, EOFError, UnicodeDecodeError) as error:
        raise unreadable(where, str(error)) from error
    except OSError as error:
        # an error of an object store has no `strerror`, and its text can have several lines
        message = error.strerror or " ".join(str(error).split())
        if _STORE_AWAY.search(message):
            raise _store_away(where, message) from error
        raise _failed(where, message) from error
    except MemoryError as error:
        raise Retryable(
            f"{where}: memory is short: {error}; give the run more, then run the same command again"
        ) from error
    except Exception as error:
        # `java_exception` is set if PySpark did not translate the exception, `_origin` if it did
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        ours = None if java is None else _jvm_error(_causes(java), where, catalog)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def parse_errors(path: str) -> Iterator[None]:
    """Raise StateUnreadable if PyArrow cannot parse the contents of the file that the block reads.

    Failures to reach the file, and a lack of memory, pass unchanged for `storage_errors`.
    """
    try:
        yield
    except pa.ArrowMemoryError:  # an ArrowException, but no damage
        raise
    except pa.ArrowException as error:
        raise unreadable(path, str(error)) from error
    except OSError as error:
        # an OSError with a number, or of a store: the file was not reached. Others: its contents cannot be parsed
        is_failure_to_read = error.errno is not None or _STORE_ERROR in str(error)
        if is_failure_to_read:
            raise
        raise unreadable(path, str(error)) from error


def _jvm_error(
    causes: Iterable[tuple[set[str], str]], where: Path | str, catalog: Path | str
) -> LakeIngestError | None:
    """Our error for a Java exception and its causes, the outermost first; None if none of them is a failure of storage.

    An EOFException below an exception of Iceberg means a damaged file. Any other EOFException means that a Python
    worker died, which is no failure of storage.
    """
    iceberg_message = None  # of the nearest exception of Iceberg above the present cause
    for kinds, message in causes:
        if kinds & _COMMIT_REFUSED:
            return StaleWriter(f"{where}: another writer commits at the same time; run the same command again")
        failed_unpacking = re.search(r"Cannot unpack [^[]*", message)
        if "java.lang.UnsatisfiedLinkError" in kinds or failed_unpacking:
            reason = failed_unpacking[0].strip() if failed_unpacking else message
            return _failed("the folder that Java unpacks libraries into (java.io.tmpdir)", reason)
        if error := _server_error(kinds, message, where, catalog):
            return error
        if "java.io.FileNotFoundException" in kinds and ("does not exist" in message or "No such file" in message):
            return unreadable(where, message)
        if any(kind.startswith(_ICEBERG) for kind in kinds):
            iceberg_message = message
        if any(kind.endswith("EOFException") for kind in kinds):
            return None if iceberg_message is None else unreadable(where, iceberg_message)
        is_of_network = any(kind.startswith("java.net.") for kind in kinds)  # no failure of a disk
        if "java.io.IOException" in kinds and not is_of_network:
            return _failed(f"{where}, or a folder that Spark works in,", message)
    return None


def _server_error(kinds: set[str], message: str, where: Path | str, catalog: Path | str) -> LakeIngestError | None:
    """Our error for a failure that the catalog's server or the object store reports; None for any other exception."""
    if "java.sql.SQLException" in kinds:
        return database_error(catalog, message)
    if _ICEBERG + "RESTException" in kinds:
        return catalog_refused(catalog, message) if kinds & _ACCESS_DENIED else catalog_away(catalog, message)
    if _THRIFT in kinds:
        return catalog_away(catalog, message)
    if kinds & _METASTORE:
        error_for = catalog_away if "Could not connect" in message else catalog_refused
        return error_for(catalog, message)
    if any(kind.startswith(_STORE_CLIENTS) for kind in kinds):
        status = re.search(r"Status Code: (\d+)", message)
        if status is None or re.fullmatch(r"429|5\d\d", status[1]):  # without a status there was no answer
            return _store_away(where, message)
        return unreadable(where, message) if status[1] == "404" else _failed(where, message)
    return None


def _causes(java: Any) -> Iterator[tuple[set[str], str]]:
    """For a Java exception and each of its causes: the names of its classes, and the first line of its message."""
    while java is not None:
        kinds: set[str] = set()
        kind = java.getClass()
        while kind is not None:
            kinds.add(str(kind.getName()))
            kind = kind.getSuperclass()
        yield kinds, str(java.getMessage()).partition("\n")[0]
        java = java.getCause()


def database_error(catalog: Path | str, message: str) -> LakeIngestError:
    """Our error for a message of the catalog's database: Retryable if another process holds it, else StorageFailed."""
    # "already exists": two processes that open a new catalog at the same time both create its tables
    if "locked" in message or "already exists" in message:
        return catalog_held(catalog)
    if "certificate" in message or "SSL" in message:
        message += "; sslmode and sslrootcert in target.catalog.uri say how the server proves who it is"
    return _failed(catalog, message)


def metastore_error(catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """The error for a failure that Hive's metastore or its client reports; None for any other error."""
    # not imported here: before a client imports it, no error can be of a metastore
    thrift = sys.modules.get("thrift.Thrift")
    if thrift is None or not isinstance(error, thrift.TException):
        return None
    transport = sys.modules["thrift.transport.TTransport"]
    # there was no connection, or the server failed before it had an answer
    has_no_answer = isinstance(error, transport.TTransportException | thrift.TApplicationException)
    # a MetaException may be a failure of the metastore's own database, which a retry can cure
    is_of_database = type(error).__name__ == "MetaException" and _METASTORE_DATABASE.search(str(error))
    is_away = has_no_answer or is_of_database
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return catalog_away(catalog, message) if is_away else catalog_refused(catalog, message)


def catalog_held(catalog: Path | str) -> Retryable:
    """The error for a catalog that another process holds."""
    return Retryable(f"{catalog} is held by another process; run the same command again")


def catalog_away(catalog: Path | str, message: str) -> CatalogAway:
    """The error for a catalog whose server does not answer, or fails."""
    return CatalogAway(f"{catalog} does not answer, or fails: {message}; run the same command again")


def catalog_refused(catalog: Path | str, message: str) -> StorageFailed:
    """The error for a catalog whose server denies access or refuses a request."""
    return StorageFailed(f"{catalog} refuses: {message}; correct target.catalog, or the rights there")


def _store_away(store: Path | str, message: str) -> StorageAway:
    """The error for an object store that does not answer, or fails."""
    return StorageAway(f"{store}: the store does not answer, or fails: {message}; run the same command again")


def _failed(what: Path | str, message: str) -> StorageFailed:
    """The error for a file, a store or a database that cannot be read or written."""
    return StorageFailed(
        f"{what} cannot be read or written: {message}; make room or repair it, then run the same command again"
    )


def unreadable(where: Path | str, message: str) -> StateUnreadable:
    """The error for a file that is gone or damaged."""
    return StateUnreadable(
        f"{where}: a file is gone or damaged: {' '.join(message.split())}; restore it, or drop the table to copy it"
        " again"
    )
