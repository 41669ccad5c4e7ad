"""The line of the installed Spark, such as 3.5: a lake format has a jar for each line."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OURS = "3.5"  # the line that pip installs with lakeingest


@cache
def spark_line() -> str:
    """The line of the installed PySpark, which is not imported for this; `OURS` if it is missing or has no version."""
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "version.py"
        if file.is_file() and (version := re.search(r"""["'](\d+\.\d+)\.""", file.read_text())):
            return version[1]
    return OURS
