"""The base class for AWS's services that run jobs."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lakeingest.cluster.archive import PYTHON
from lakeingest.cluster.objects import on_amazon
from lakeingest.cluster.service import C, JobService
from lakeingest.config import amazon
from lakeingest.errors import Retryable
from lakeingest.files.stored import Stored

# The path of this Python on Amazon Linux 2023. EMR 7.1 and later have it, besides the Python 3.9 that EMR itself uses
INTERPRETER = f"/usr/bin/python{PYTHON}"


@dataclass(frozen=True, slots=True)
class AmazonJobs(JobService[C]):
    """A service of EMR, whose images have the jars of the lake formats."""

    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "iceberg": {"spark.jars": "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"},
        "hudi": {"spark.jars": "/usr/lib/hudi/hudi-spark-bundle.jar"},
    }

    def require_client(self) -> None:
        """Raise OperatorNeeded if AWS's client is not installed."""
        amazon.require_client()

    def folder(self, uri: str) -> Stored:
        """A folder of S3."""
        return on_amazon(uri, self.region)


def driver_output(folder: Stored) -> str:
    """The output of a driver, read from the folder in which AWS stores it; empty if there are no files yet.

    Files that are not complete yet are left out. If the store does not answer, the output is what was read until then.
    """
    texts = []
    for name in ("stderr.gz", "stdout.gz"):
        try:
            texts.append(gzip.decompress((folder / name).read()).decode(errors="replace"))
        except (FileNotFoundError, EOFError, gzip.BadGzipFile):
            continue
        except Retryable:  # the store does not answer: a part of the output is better than an error
            break
    return "".join(texts)
