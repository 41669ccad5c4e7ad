"""`python -m lakeingest` is the command `lakeingest`. As the program of a job it finds the archives of the job itself.

They are unpacked under their names in the working folder (YARN's and Kubernetes' cluster mode, EMR Serverless), or,
in client mode, in a folder of Spark that exists only once there is a session. This file is shipped alone, beside them.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ARCHIVES = ("job", "dependencies")  # what `--archives` names them after the #


def find_archives() -> None:
    """Put the archives on the path. In client mode the working folder is then the one in which they are."""
    if not _take(Path.cwd()) and find_spec("lakeingest") is None:
        from pyspark import SparkFiles
        from pyspark.sql import SparkSession

        SparkSession.builder.getOrCreate()
        unpacked = Path(SparkFiles.getRootDirectory())
        if not _take(unpacked):
            sys.exit("lakeingest: neither installed nor among the job's archives: --archives URI#job,URI#dependencies")
        os.chdir(unpacked)  # as on an executor, so that job/pipeline.yml is found


def _take(folder: Path) -> bool:
    """Whether the folder has archives; they are on the path then."""
    found = [str(folder / name) for name in ARCHIVES if (folder / name).is_dir()]
    if found and Path(found[0], "lakeingest").is_dir():
        sys.path[:0] = [path for path in found if path not in sys.path]
        return True
    return False


if __name__ == "__main__":
    if __package__ != "lakeingest":  # a program of its own
        sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
        find_archives()
    from lakeingest.cli import main

    sys.exit(main())
