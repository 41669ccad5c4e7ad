"""Raises failures of files, of PyIceberg and of the client libraries of catalogs as errors of lakeingest."""

import sqlite3
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.table import ManifestGroupPlanner

from lakeingest.errors import LakeIngestError
from lakeingest.lake import errors
from lakeingest.lake.errors import (
    catalog_away,
    catalog_held,
    catalog_refused,
    database_error,
    metastore_error,
    unreadable,
)
from lakeingest.lake.iceberg.storage.avro_files import AvroInput
from lakeingest.lake.iceberg.storage.projection import NotProjectable

# PyIceberg raises one of these errors for a missing or damaged metadata.json
UNREADABLE = (FileNotFoundError, EOFError, UnicodeDecodeError, ValidationError)


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Raise a failure in the block as our error, if `lake.errors.storage_errors` or `_library_error` has one for it."""
    with errors.storage_errors(where, catalog):
        try:
            yield
        except Exception as error:
            ours = _library_error(where, catalog, error)
            if ours is None:
                raise
            raise ours from error


@contextmanager
def parse_errors(path: str) -> Iterator[None]:
    """Raise StateUnreadable as `lake.errors.parse_errors` does, and also if a data file lacks columns of the table."""
    with errors.parse_errors(path):
        try:
            yield
        except NotProjectable as error:
            raise unreadable(path, str(error)) from error


def _library_error(where: Path | str, catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """Our error for an error of a library; None if it is left to `lake.errors`, or is no failure of storage."""
    match error:
        case ValidationError():
            return unreadable(where, str(error))
        case RESTError():
            return _rest_error(catalog, error)
    ours = _sql_error(catalog, error) or _amazon_error(catalog, error) or metastore_error(catalog, error)
    if ours is not None:
        return ours
    if _is_http_error(error):
        return catalog_away(catalog, _message(error))
    if isinstance(error, OSError | MemoryError):  # left to `lake.errors`; the errors above may be OSErrors, too
        return None
    if _was_reading_manifest(error) or _is_unknown_spec(error):
        return unreadable(where, f"a manifest: {type(error).__name__}: {error}")
    return None


def _rest_error(catalog: Path | str, error: RESTError) -> LakeIngestError:
    """Our error for an error that a REST catalog answered with."""
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError | AuthorizationExpiredError | BadRequestError):
        return catalog_refused(catalog, _message(error))
    return catalog_away(catalog, _message(error))


def _sql_error(catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """Our error for a failure that the database of a catalog reports; None for any other error."""
    if isinstance(error, sqlite3.Error):  # of the embedded catalog
        is_race, message = isinstance(error, sqlite3.IntegrityError), str(error)
    else:
        sqlalchemy = sys.modules.get("sqlalchemy.exc")
        if sqlalchemy is None or not isinstance(error, sqlalchemy.DBAPIError):
            return None
        is_race, message = isinstance(error, sqlalchemy.IntegrityError), str(error.orig)
    # an IntegrityError: another run has just made the same row
    return catalog_held(catalog) if is_race else database_error(catalog, message)


def _amazon_error(catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """Our error for a failure of Glue that Amazon's botocore reports; None for any other error."""
    botocore = sys.modules.get("botocore.exceptions")
    if botocore is None or not isinstance(error, botocore.BotoCoreError | botocore.ClientError):
        return None
    if isinstance(error, botocore.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(error.response.get("Error", {}).get("Code", ""))
        is_away = status >= HTTPStatus.INTERNAL_SERVER_ERROR or "Throttl" in code or "LimitExceeded" in code
    else:
        is_away = isinstance(error, botocore.ConnectionError | botocore.HTTPClientError | botocore.IncompleteReadError)
    message = _message(error)
    return catalog_away(catalog, message) if is_away else catalog_refused(catalog, message)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_http_error(error: BaseException) -> bool:
    """Whether the error is one of the HTTP client of PyIceberg's REST catalog: these are OSErrors without `errno`."""
    requests = sys.modules.get("requests")
    return requests is not None and isinstance(error, requests.RequestException)


def _was_reading_manifest(error: Exception) -> bool:
    """Whether PyIceberg failed to read a manifest or a manifest list. A damaged file may cause any kind of error."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_globals.get("__name__") in {AvroFile.__module__, AvroInput.__module__}
        and "self" in frame.f_locals
        and isinstance(frame.f_locals["self"], AvroFile)
        for frame in frames
    )


def _is_unknown_spec(error: Exception) -> bool:
    """Whether the error is the KeyError of PyIceberg's planner for a partition spec that the table does not have.

    A manifest list names this partition spec.
    """
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, KeyError) and isinstance(innermost.f_locals.get("self"), ManifestGroupPlanner)
