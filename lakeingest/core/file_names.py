"""Names of files and folders that are made from names of tables: each is one part of a path, whatever the table's name.

A table may be called `..` or `a/b`. `segment` and `file_name` encode a name. `joined` asserts that each part of a path
is a single name.
"""

import hashlib
import re
from urllib.parse import quote

MOST_BYTES = 218  # of 255 that file systems allow: a document is first written under a name with 37 bytes more
_CUT = "="  # percent-encoded names do not have it
_DIGEST = 32
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~ -]+")  # what `quote` encodes, apart from the space


def segment(name: str, unsafe: re.Pattern[str], reserved: frozenset[str] = frozenset()) -> str:
    """The part of a path for a name. Characters that `unsafe` matches are percent-encoded.

    If the encoded name is `.`, `..` or one of the `reserved` names, its dots are encoded, too.
    """
    encoded = unsafe.sub(lambda match: quote(match[0], safe=""), name)
    return encoded.replace(".", "%2E") if encoded in {".", "..", *reserved} else encoded


def joined(root: str, *parts: str) -> str:
    """The path of these parts below a folder. Raises ValueError for a part that is no single name: it may lead out."""
    for part in parts:
        if part in {"", ".", ".."} or "/" in part or "\0" in part:
            raise ValueError(f"{part!r} is no part of a path below {root}")
    return "/".join((root.rstrip("/"), *parts))


def inside(name: str) -> str:
    """The `name` from a document, if it names a file below the document's folder. Raises ValueError otherwise.

    Without this check, a person who can write the document could choose other files to be read or deleted.
    """
    joined("its folder", *name.split("/"))  # only for its ValueError
    return name


def file_name(name: str) -> str:
    """The name of a file for the `name` of a database and a table. Two names never have the same file.

    The `name` is percent-encoded. If the encoded name is too long for a file, the result is the beginning of the
    encoded name, `=`, and a digest of the whole `name`.
    """
    encoded = segment(name, _UNSAFE)
    if len(encoded) <= MOST_BYTES:
        return encoded
    beginning = encoded[: MOST_BYTES - _DIGEST - 1]
    if "%" in beginning[-2:]:  # the cut was within a percent code, as in `%2`
        beginning = beginning[: beginning.rindex("%")]
    return f"{beginning}{_CUT}{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"


def is_cut(name: str) -> bool:
    """Whether this result of `file_name` is shortened: the beginning of the encoded name, and a digest."""
    return _CUT in name
