"""The digest of lakeingest's modules, by which executors assert that they have the same modules as the driver."""

import hashlib
from functools import cache
from pathlib import Path

DIGEST = "LAKEINGEST_SOURCES"  # the environment variable of executors that has the driver's digest


@cache
def digest() -> str:
    """The digest of this process's modules. It depends only on the contents and relative paths of the files."""
    root, sha256 = Path(__file__).parents[1], hashlib.sha256()
    for module in sorted(root.rglob("*.py")):
        sha256.update(f"{module.relative_to(root)}\0".encode() + module.read_bytes() + b"\0")
    return sha256.hexdigest()[:16]
