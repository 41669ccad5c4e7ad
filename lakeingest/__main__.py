"""`python -m lakeingest` is the command `lakeingest`. As the program of a job, it puts the job's archives on the path.

The archives are unpacked under their names in the working folder (cluster mode of YARN and Kubernetes, EMR Serverless),
or, in client mode, in a folder of Spark that exists only after a session has started. A job ships this file by itself,
beside the archives.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ARCHIVES = ("job", "dependencies")  # their names after the # in `--archives`


def find_archives() -> None:
    """Put the archives on the path. In client mode, also make their folder the working folder."""
    if not _take(Path.cwd()) and find_spec("lakeingest") is None:
        from pyspark import SparkFiles
        from pyspark.sql import SparkSession

        SparkSession.builder.getOrCreate()
        unpacked = Path(SparkFiles.getRootDirectory())
        if not _take(unpacked):
            sys.exit("lakeingest: neither installed nor among the job's archives: --archives URI#job,URI#dependencies")
        os.chdir(unpacked)  # as on an executor, so that job/pipeline.yml is found


def _take(folder: Path) -> bool:
    """Put the archives of this folder on the path, and return True; False if it has no archives."""
    archives = [str(folder / name) for name in ARCHIVES if (folder / name).is_dir()]
    if archives and Path(archives[0], "lakeingest").is_dir():
        sys.path[:0] = [path for path in archives if path not in sys.path]
        return True
    return False


if __name__ == "__main__":
    if __package__ != "lakeingest":  # a program of its own
        sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
        find_archives()
    from lakeingest.cli import main

    sys.exit(main())
