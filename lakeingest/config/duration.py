"""A length of time in pipeline.yml: a number and its unit."""

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhdw])", re.ASCII)
_MOST = timedelta(days=36_525)  # so that it can be counted back from now
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _parse_duration(value: Any) -> timedelta:
    """The length of time in a text such as 5d. Raises ValueError for any other value."""
    match = _DURATION.fullmatch(str(value))
    if match is None:
        raise ValueError("a duration is a number and its unit: 30s, 15m, 12h, 5d or 2w")
    try:
        duration = timedelta(**{_UNITS[match["unit"]]: int(match["number"])})
    except OverflowError:
        duration = timedelta.max
    if duration > _MOST:
        raise ValueError("this duration is longer than a hundred years")
    return duration


# A length of time such as 5d. A number without a unit is refused.
Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(lambda duration: f"{duration // timedelta(seconds=1)}s"),
]
