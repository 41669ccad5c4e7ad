"""Endpoints: URLs of servers. They may hold no password, and no secret may be sent to them in plain text."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakeingest.config.secrets import is_reference
from lakeingest.config.source import is_loopback

_ENDS = ("uri", "endpoint", "service.host")  # names of properties whose values are endpoints
_NEXT = re.compile(r",(?=\w+://)")  # the comma between two metastores in a list


def endpoints_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are endpoints, without those with a variable or a reference, which only the job knows.

    The URL of a proxy does not count as an endpoint, because it may hold the password of the proxy's user.
    """
    return {
        name: value
        for name, value in properties.items()
        if name.endswith(_ENDS) and "proxy" not in name and value and "${" not in value and not is_reference(value)
    }


def assert_endpoint(name: str, url: str) -> None:
    """Raise ValueError if `url` is not a server's URL, or has a user or password; the message quotes no part of it."""
    if not all(map(_is_endpoint, _NEXT.split(url))):
        raise ValueError(f"{name} is the URL of a server, SCHEME://HOST:PORT/PATH, without user and password")


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (parts.port or 1) > 0 and "@" not in parts.netloc and bool(parts.hostname)
    except ValueError:  # a wrong port, or a wrong address in brackets
        return False


def is_open(url: str) -> bool:
    """Whether requests to this URL are sent in plain text to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
