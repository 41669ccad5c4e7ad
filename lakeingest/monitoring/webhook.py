"""A webhook: gets each notice as a POST with a JSON document."""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.message import Message
from http.client import HTTPException
from types import MappingProxyType
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.notices import RUN, Notice
from lakeingest.core.printable import printable

PAUSES_SECONDS = (1.0, 3.0)  # between tries
ANSWER_SECONDS = 5.0  # how long the server may take to answer
_TOO_MANY, _SERVER_FAILS = 429, 500  # statuses of HTTP, after which another try may succeed


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, because the new address may be somebody else's, or may be without TLS."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str) -> None:
        """Return None, so that no redirect is followed: then urllib raises HTTPError."""


def document(pipeline: str, notice: Notice, message: str) -> dict[str, Any]:
    """The notice as a JSON document. `message`: that of the error, '' without one."""
    return {
        "pipeline": pipeline,
        "occasion": notice.occasion,
        "table": None if notice.table == RUN else notice.table,
        "error": notice.error or None,
        "message": message or None,
        "runbook": f"lakeingest explain {notice.error}" if notice.error else None,
        "position": notice.position,
        "age_seconds": None if notice.age is None else round(notice.age, 3),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def slack(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a notice as a message of Slack. Names from the source cannot mention people or format text."""
    what = f"table {doc['table']}" if doc["table"] else "run"
    age = "" if doc["age_seconds"] is None else f", readers see it as of {spoken(doc['age_seconds'])} ago"
    reasons = [part for part in (doc["error"], doc["message"], doc["runbook"]) if part]
    # `rstrip`: without reasons, the text does not end with a colon
    text = printable(f"{doc['pipeline']}: {what} {doc['occasion']}{age}: " + " · ".join(reasons)).rstrip(": ")
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def post(
    url: str, docs: Iterable[Mapping[str, Any]], headers: Mapping[str, str] = MappingProxyType({})
) -> list[Exception | None]:
    """Send the documents one by one, and try each several times. Returns the error of each; None if it has arrived.

    After a document that has not arrived, the later ones are not tried, and get the same error.
    """
    results = list[Exception | None]()
    for doc in docs:
        results.append(results[-1] if results and results[-1] is not None else _post(url, doc, headers))
    return results


def _post(url: str, doc: Mapping[str, Any], headers: Mapping[str, str]) -> Exception | None:
    """Send a document, and try again if another try may succeed. Returns the last error; None if it has arrived."""
    headers = {"Content-Type": "application/json", **headers}
    request = Request(url, json.dumps(doc).encode(), headers)  # noqa: S310 - HTTP(S) only
    opener, failure = build_opener(_NoRedirects), None
    for pause in (*PAUSES_SECONDS, None):  # None: there is no pause after the last try
        try:
            with opener.open(request, timeout=ANSWER_SECONDS):
                return None
        except HTTPError as error:
            failure = OSError(f"the server answers {error.code}")
            if error.code < _SERVER_FAILS and error.code != _TOO_MANY:
                return failure
        except (OSError, HTTPException, ValueError) as error:
            failure = OSError(str(getattr(error, "reason", None) or type(error).__name__))  # not the URL, a secret
        if pause is not None:
            time.sleep(pause)
    return failure
