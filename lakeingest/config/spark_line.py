"""The line of Spark that is here, such as 3.5: a lake format has another jar for each."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OURS = "3.5"  # which pip installs lakeingest with


@cache
def spark_line() -> str:
    """That of PySpark, which is not imported for this; ours where none is here, or its version is not told."""
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        version = Path(folder) / "version.py"
        if version.is_file() and (found := re.search(r"""["'](\d+\.\d+)\.""", version.read_text())):
            return found[1]
    return OURS
