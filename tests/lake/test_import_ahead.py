"""The modules of a format are imported before a merge asks for them."""

import subprocess
import sys
from pathlib import Path

# Prints whether the format's package was imported before `import_ahead`, and after it.
IMPORT = """
import sys
from pathlib import Path
from lakeingest.config import parse_config
from lakeingest.lake.formats import import_ahead

document = {
    "name": "p", "source": {"host": "127.0.0.1", "user": "u"}, "tables": {"include": ["a.b"]},
    "target": {"warehouse": "warehouse", "format": sys.argv[1]}, "state": "state",
}
config, package = parse_config(document, Path.cwd(), {}), f"lakeingest.lake.{sys.argv[1]}.package"
before = package in sys.modules
if sys.argv[2] == "fails":
    sys.modules[package] = None  # so that its import raises ImportError
import_ahead(config)
print(before, sys.modules.get(package) is not None)
"""


def test_the_format_is_imported_ahead(lake_format: str) -> None:
    """A failure raises nothing: the next import raises the error."""
    for way, expected in (("works", "False True"), ("fails", "False False")):
        command = [sys.executable, "-c", IMPORT, lake_format, way]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
