"""Failures of Iceberg's storage: what `lake.errors` names, and errors of PyIceberg and of the catalog's database."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
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
from sqlalchemy.exc import DBAPIError, IntegrityError

from lakeingest.errors import LakeIngestError
from lakeingest.lake import errors
from lakeingest.lake.errors import away, held, of_database, refused, unreadable
from lakeingest.lake.iceberg.projection import NotProjectable


@contextmanager
def storage_errors(where: Path | str, catalog: Path | str = "the catalog") -> Iterator[None]:
    """Name a failure of the block as `lake.errors.storage_errors` does, and those of PyIceberg and of SQLAlchemy."""
    with errors.storage_errors(where, catalog):
        try:
            yield
        except ValidationError as error:
            raise unreadable(where, str(error)) from error
        except DBAPIError as error:
            if isinstance(error, IntegrityError):
                raise held(catalog) from error
            raise of_database(catalog, str(error.orig)) from error
        except RESTError as error:
            raise _of_rest(catalog, error) from error
        except (OSError, MemoryError) as error:
            if _is_of_requests(error):
                raise away(catalog, _message(error)) from error
            raise
        except Exception as error:
            if _is_of_avro(error):
                raise unreadable(where, f"a manifest: {type(error).__name__}: {error}") from error
            raise


@contextmanager
def parsed(path: str) -> Iterator[None]:
    """StateUnreadable as `lake.errors.parsed`, and when a data file does not have the columns of the table."""
    with errors.parsed(path):
        try:
            yield
        except NotProjectable as error:
            raise unreadable(path, str(error)) from error


def _of_rest(catalog: Path | str, error: RESTError) -> LakeIngestError:
    """The error for an answer of a REST catalog."""
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError | AuthorizationExpiredError | BadRequestError):
        return refused(catalog, _message(error))
    return away(catalog, _message(error))


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_of_requests(error: BaseException) -> bool:
    """Whether the HTTP client of PyIceberg's REST catalog raised it: its errors are OSErrors without a number."""
    requests = sys.modules.get("requests")
    return requests is not None and isinstance(error, requests.RequestException)


def _is_of_avro(error: Exception) -> bool:
    """Whether PyIceberg was reading a manifest or a manifest list; of a damaged file it raises almost any error."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_globals.get("__name__") == AvroFile.__module__
        and "self" in frame.f_locals
        and isinstance(frame.f_locals["self"], AvroFile)
        for frame in frames
    )
