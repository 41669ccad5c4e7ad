"""The sources of lakeingest, as a digest: executors must have those of the driver, or they would do other work."""

import hashlib
from functools import cache
from pathlib import Path

DIGEST = "LAKEINGEST_SOURCES"  # the variable that tells executors the driver's


@cache
def digest() -> str:
    """The same wherever the same sources are installed or unpacked."""
    root, found = Path(__file__).parents[1], hashlib.sha256()
    for source in sorted(root.rglob("*.py")):
        found.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]
