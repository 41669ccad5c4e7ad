"""Failures of Iceberg's storage as errors of lakeingest: those of `lake.errors`, of PyIceberg, and of catalogs."""

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
from sqlalchemy.exc import DBAPIError, IntegrityError

from lakeingest.errors import LakeIngestError
from lakeingest.lake import errors
from lakeingest.lake.errors import away, held, of_database, of_metastore, refused, unreadable
from lakeingest.lake.iceberg.projection import NotProjectable


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Raise a failure of the block as `lake.errors.storage_errors` does, also one of the catalogs' libraries."""
    with errors.storage_errors(where, catalog):
        try:
            yield
        except Exception as error:
            ours = _named(where, catalog, error)
            if ours is None:
                raise
            raise ours from error


@contextmanager
def parsed(path: str) -> Iterator[None]:
    """Raises StateUnreadable as `lake.errors.parsed` does, and when a data file lacks the columns of the table."""
    with errors.parsed(path):
        try:
            yield
        except NotProjectable as error:
            raise unreadable(path, str(error)) from error


def _named(where: Path | str, catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """Our error for an error of a library; None if `lake.errors` names it, or nobody does."""
    match error:
        case ValidationError():
            return unreadable(where, str(error))
        case IntegrityError():
            return held(catalog)
        case DBAPIError():
            return of_database(catalog, str(error.orig))
        case RESTError():
            return _of_rest(catalog, error)
    if (ours := _of_amazon(catalog, error) or of_metastore(catalog, error)) is not None:
        return ours
    if isinstance(error, OSError | MemoryError):
        return away(catalog, _message(error)) if _is_of_requests(error) else None
    is_of_manifest = _is_of_avro(error) or _is_of_unknown_spec(error)
    return unreadable(where, f"a manifest: {type(error).__name__}: {error}") if is_of_manifest else None


def _of_rest(catalog: Path | str, error: RESTError) -> LakeIngestError:
    """The error for an answer of a REST catalog."""
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError | AuthorizationExpiredError | BadRequestError):
        return refused(catalog, _message(error))
    return away(catalog, _message(error))


def _of_amazon(catalog: Path | str, error: Exception) -> LakeIngestError | None:
    """The error for a failure of Glue that Amazon's library reports; None for other errors."""
    library = sys.modules.get("botocore.exceptions")
    if library is None or not isinstance(error, library.BotoCoreError | library.ClientError):
        return None
    if isinstance(error, library.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(error.response.get("Error", {}).get("Code", ""))
        is_away = status >= HTTPStatus.INTERNAL_SERVER_ERROR or "Throttl" in code or "LimitExceeded" in code
    else:
        is_away = isinstance(error, library.ConnectionError | library.HTTPClientError | library.IncompleteReadError)
    return (away if is_away else refused)(catalog, _message(error))


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_of_requests(error: BaseException) -> bool:
    """Whether the HTTP client of PyIceberg's REST catalog raised the error.

    Its errors are OSErrors without a number.
    """
    requests = sys.modules.get("requests")
    return requests is not None and isinstance(error, requests.RequestException)


def _is_of_avro(error: Exception) -> bool:
    """Whether PyIceberg was reading a manifest or a manifest list. For a damaged file it raises almost any error."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_globals.get("__name__") == AvroFile.__module__
        and "self" in frame.f_locals
        and isinstance(frame.f_locals["self"], AvroFile)
        for frame in frames
    )


def _is_of_unknown_spec(error: Exception) -> bool:
    """Whether a list of manifests names a partition spec that the table does not have."""
    *_, (raising, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, KeyError) and isinstance(raising.f_locals.get("self"), ManifestGroupPlanner)
