"""What executors write for a Hudi table: files of staging, which the publish hands to Hudi."""

from dataclasses import dataclass

import pyarrow as pa

from lakeingest.lake.errors import storage_errors
from lakeingest.lake.hudi.staging import StagingFolder


@dataclass(frozen=True, slots=True)
class HudiWriter:
    """Writes Parquet files into staging."""

    folder: StagingFolder

    def write(self, rows: pa.Table) -> bytes:
        """The file's name. Every call names its own, so a retried or speculative task harms nobody."""
        with storage_errors(self.folder.path):
            return self.folder.write(rows).encode()


@dataclass(frozen=True, slots=True)
class HudiMerger(HudiWriter):
    """Writes the last change of each key; where the old rows are, Hudi finds by its index."""

    keeps_deletes: bool = True

    def replace(self, changes: pa.Table) -> bytes:  # noqa: ARG002
        """Nothing to write for that."""
        return b""
