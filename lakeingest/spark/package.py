"""The digest of lakeingest's sources. Executors must have the driver's sources, or they would do other work."""

import hashlib
from functools import cache
from pathlib import Path

DIGEST = "LAKEINGEST_SOURCES"  # the environment variable with the driver's digest, on executors


@cache
def digest() -> str:
    """The digest of the installed or unpacked sources; it depends on their contents and relative paths alone."""
    root, sha256 = Path(__file__).parents[1], hashlib.sha256()
    for source in sorted(root.rglob("*.py")):
        sha256.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes() + b"\0")
    return sha256.hexdigest()[:16]
