"""The line of the installed Spark, such as 3.5 for version 3.5.8. A lake format has a jar for each line of Spark."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OURS = "3.5"  # the line that pip installs with lakeingest


@cache
def spark_line() -> str:
    """The line of the installed PySpark; `OURS` if PySpark is missing or has no version. PySpark is not imported."""
    spec = find_spec("pyspark")
    folders = None if spec is None else spec.submodule_search_locations
    for folder in folders or ():
        file = Path(folder) / "version.py"
        if file.is_file() and (version := re.search(r"""["'](\d+\.\d+)\.""", file.read_text())):
            return version[1]
    return OURS
