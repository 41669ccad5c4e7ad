"""The common part of AWS's services that run jobs."""

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

# The interpreter on Amazon Linux 2023; EMR has it beside its own 3.9 since 7.1.
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


def unzipped(folder: Stored) -> str:
    """The output of a driver, from the files in which AWS stores it; empty before there are any."""
    texts = []
    for name in ("stderr.gz", "stdout.gz"):
        try:
            texts.append(gzip.decompress((folder / name).read()).decode(errors="replace"))
        except (FileNotFoundError, EOFError, gzip.BadGzipFile):
            continue
        except Retryable:
            break
    return "".join(texts)
