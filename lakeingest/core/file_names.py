"""Names of files and folders that are made of names of tables: whatever the name, it is one part of a path.

A table of a source may be called `..` or `a/b`. `segment` and `file_name` encode a name, `joined` asserts that each
part of a path is one.
"""

import hashlib
import re
from urllib.parse import quote

MOST_BYTES = 218  # of 255 that file systems allow: documents are written beside their place, with 37 bytes more
_CUT = "="  # percent-encoded names do not have it
_DIGEST = 32
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~ -]+")  # what `quote` encodes; a space is read as it is


def segment(name: str, unsafe: re.Pattern[str], reserved: frozenset[str] = frozenset()) -> str:
    """The part of a path for a name; what `unsafe` finds is percent-encoded.

    So are the dots of a name that stands for this folder, for the one above, or for something that is `reserved`.
    """
    encoded = unsafe.sub(lambda found: quote(found[0], safe=""), name)
    return encoded.replace(".", "%2E") if encoded in {".", "..", *reserved} else encoded


def joined(root: str, *parts: str) -> str:
    """The path of these parts below a folder; ValueError where a part is not one name, and so may lead elsewhere."""
    for part in parts:
        if part in {"", ".", ".."} or "/" in part or "\0" in part:
            raise ValueError(f"{part!r} is no part of a path below {root}")
    return "/".join((root.rstrip("/"), *parts))


def inside(name: str) -> str:
    """The name that a document has for a file below its folder; ValueError for one of another place.

    Whoever can write the document must not choose which other files are read, or deleted.
    """
    joined("its folder", *name.split("/"))
    return name


def file_name(name: str) -> str:
    """The name of a file for a name of a database and a table; two names never have the same file.

    It is percent-encoded; where it is too long for a file, it is its beginning, `=` and a digest of the whole name.
    """
    encoded = segment(name, _UNSAFE)
    if len(encoded) <= MOST_BYTES:
        return encoded
    beginning = encoded[: MOST_BYTES - _DIGEST - 1]
    whole = beginning if "%" not in beginning[-2:] else beginning[: beginning.rindex("%")]
    return f"{whole}{_CUT}{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"


def is_cut(name: str) -> bool:
    """Whether the name of a file is only the beginning of an encoded name, and a digest."""
    return _CUT in name
