"""Endpoints: URLs of servers, which hold no password, and over which no secret leaves in plain text."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakeingest.config.secrets import is_reference
from lakeingest.config.source import is_loopback

_ENDS = ("uri", "endpoint", "service.host")  # names of properties whose values are endpoints
_NEXT = re.compile(r",(?=\w+://)")  # between the metastores of a list


def endpoints_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Those properties that are endpoints, as far as they are known here: the job alone knows variables and references.

    The URL of a proxy is none: the password of its user stands there.
    """
    return {
        name: value
        for name, value in properties.items()
        if name.endswith(_ENDS) and "proxy" not in name and value and "${" not in value and not is_reference(value)
    }


def assert_endpoint(name: str, url: str) -> None:
    """ValueError if it is not the URL of a server, or contains a user or a password; the message quotes none of it."""
    if not all(map(_is_endpoint, _NEXT.split(url))):
        raise ValueError(f"{name} is the URL of a server, SCHEME://HOST:PORT/PATH, without user and password")


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (parts.port or 1) > 0 and "@" not in parts.netloc and bool(parts.hostname)
    except ValueError:  # of a port that is none, or an address in brackets
        return False


def is_open(url: str) -> bool:
    """Whether requests to it are sent in plain text to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
