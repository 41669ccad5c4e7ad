"""Moments and places that users write, such as the value of `--since`: a reader asks for the changes after it."""

import re
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import TypeAdapter

from lakeingest.config.duration import Duration
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.errors import StateUnreadable, UsageError
from lakeingest.pipeline.changelog.positions import Since

_DURATION = re.compile(r"\d+[smhdw]", re.ASCII)
_GTIDS = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")


def parse_since(text: str, now: datetime) -> Since:
    """The value of `--since`, parsed. Raises UsageError for a text that has none of the five forms.

    The forms are, in the order in which they are tried: a duration, which is counted back from `now`; a GTID set; a
    position of the changelog; an ISO 8601 time, which is in UTC if it has no zone; FILE:POSITION of the binlog.
    """
    if _DURATION.fullmatch(text):
        return parse_time("--since", text, now)
    try:
        if _GTIDS.match(text):
            return GtidSet.parse(text)
        return ReadTo.parse(text)
    except StateUnreadable as error:  # a GTID set or a position, with a mistake in it
        raise UsageError(f"--since: {error}") from error
    except ValueError:
        pass  # no position of the changelog
    with suppress(UsageError):  # no time
        return parse_time("--since", text, now)
    try:
        return FilePosition.parse(text)
    except StateUnreadable:
        raise UsageError(
            f"--since {text}: wanted a position as the lines carry it, a GTID set of MySQL, FILE:POSITION of the"
            " binlog, a time such as 2026-01-31T12:00:00Z, or a duration such as 2h"
        ) from None


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """The value of an option that is an ISO 8601 time, in UTC if it has no zone, or a duration counted back from `now`.

    Raises UsageError for any other text.
    """
    if _DURATION.fullmatch(text):
        return now - TypeAdapter(Duration).validate_python(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "wanted a time such as 2026-01-31T12:00:00Z, or a duration such as 2h"
        raise UsageError(f"{option} {text}: {wanted}") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def parse_gtids(text: str) -> GtidSet:
    """The value of `--gtid`, a GTID set of MySQL. Raises UsageError for any other text."""
    try:
        return GtidSet.parse(text)
    except StateUnreadable as error:
        raise UsageError(f"--gtid: {error}") from error
