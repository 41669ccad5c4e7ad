"""Names of files and folders that are made of names of tables."""

import hashlib
from urllib.parse import quote

MOST_BYTES = 218  # of 255 that file systems allow: documents are written beside their place, with 37 bytes more
_CUT = "="  # percent-encoded names do not have it
_DIGEST = 32


def file_name(name: str) -> str:
    """The name of a file for a name of a database and a table; two names never have the same file.

    It is percent-encoded; where it is too long for a file, it is its beginning, `=` and a digest of the whole name.
    """
    encoded = quote(name, safe=" ")
    if len(encoded) <= MOST_BYTES:
        return encoded
    beginning = encoded[: MOST_BYTES - _DIGEST - 1]
    whole = beginning if "%" not in beginning[-2:] else beginning[: beginning.rindex("%")]
    return f"{whole}{_CUT}{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"


def is_cut(name: str) -> bool:
    """Whether the name of a file is only the beginning of an encoded name, and a digest."""
    return _CUT in name
