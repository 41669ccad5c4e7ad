"""Iceberg's REST catalog with a time limit for each request: PyIceberg sets none, and would wait for ever."""

import functools

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

_SECONDS = (10.0, 60.0)  # to connect, and between two bytes of an answer


class TimedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog; a request without an answer raises an error of `requests`."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = functools.partial(session.request, timeout=_SECONDS)  # type: ignore[method-assign]
        return session
