"""`python -m lakeingest` is the command `lakeingest`. This file is also the program of a job on a cluster.

Such a job has this file and archives with lakeingest. So this file first adds the unpacked archives to `sys.path`. On
YARN and Kubernetes in cluster mode, and on EMR Serverless, the archives are unpacked into the working folder. In client
mode they are in a folder of Spark, which exists only after a session has started.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ARCHIVES = ("job", "dependencies")  # the names of the unpacked archives: what follows the # in `--archives URI#NAME`


def find_archives() -> None:
    """Add the archives in the working folder to `sys.path`. If it has none, lakeingest may be installed already.

    If lakeingest is not installed either, the archives are in Spark's folder, as in client mode. They are added from
    there, and Spark's folder becomes the working folder. Exits if Spark's folder has no archives.
    """
    if _add_archives(Path.cwd()) or find_spec("lakeingest") is not None:
        return  # the service has unpacked the archives here, or lakeingest is installed
    from pyspark import SparkFiles
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()  # unpacks the archives
    unpacked = Path(SparkFiles.getRootDirectory())
    if not _add_archives(unpacked):
        sys.exit("lakeingest: neither installed nor among the job's archives: --archives URI#job,URI#dependencies")
    os.chdir(unpacked)  # as on an executor, so that job/pipeline.yml is found


def _add_archives(folder: Path) -> bool:
    """Add the archives in this folder to `sys.path`. Returns False, and adds nothing, if lakeingest is not in them."""
    archives = [str(folder / name) for name in ARCHIVES if (folder / name).is_dir()]
    if archives and Path(archives[0], "lakeingest").is_dir():  # the first archive is `job`, unless it is missing
        sys.path[:0] = [path for path in archives if path not in sys.path]
        return True
    return False


if __name__ == "__main__":
    if __package__ != "lakeingest":  # the file was started as the program of a job, not by `python -m lakeingest`
        # Python has added this file's folder: a module there would hide a module of the same name elsewhere
        sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
        find_archives()
    from lakeingest.cli import main

    sys.exit(main())
