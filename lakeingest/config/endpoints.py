"""Endpoints: URLs of servers. An endpoint must not contain a password, and gets no secret in plain text."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakeingest.config.secrets import is_reference
from lakeingest.config.source import is_loopback

_ENDINGS = ("uri", "endpoint", "service.host")  # how the names of properties end whose values are endpoints
_BETWEEN_URLS = re.compile(r",(?=\w+://)")  # the comma between two URLs in a list of metastores


def endpoints_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties whose values are endpoints.

    Properties with a variable or a reference are left out, because only the job will know their values. URLs of proxies
    are left out, because they are allowed to contain a password.
    """
    return {
        name: value
        for name, value in properties.items()
        if name.endswith(_ENDINGS) and "proxy" not in name and value and "${" not in value and not is_reference(value)
    }


def assert_endpoint(name: str, url: str) -> None:
    """Raise ValueError if `url`, the value of `name`, is not the URL of a server, or has a user or a password in it.

    The message has no part of the URL, because any part may be from a password.
    """
    if not all(map(_is_endpoint, _BETWEEN_URLS.split(url))):
        raise ValueError(f"{name} is the URL of a server, SCHEME://HOST:PORT/PATH, without user and password")


def _is_endpoint(url: str) -> bool:
    return names_server(url) and "@" not in urlsplit(url).netloc


def names_server(url: str) -> bool:
    """Whether the URL has a host, and either a valid port or none. It may have a user and a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises an error for a wrong port
        return bool(parts.hostname)
    except ValueError:  # a wrong port, or a wrong address in brackets
        return False


def is_plain_text(url: str) -> bool:
    """Whether requests to this URL are sent in plain text to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
