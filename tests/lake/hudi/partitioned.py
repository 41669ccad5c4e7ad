"""Whether the files of a Hudi table are in the folders of their rows' partitions."""

import pyarrow.parquet as pq

from lakeingest.config import Target
from lakeingest.core.tables.schema import TableId
from lakeingest.files.local import Local
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.partitions import PARTITION


def places(settings: Target, table: TableId) -> dict[str, str]:
    """The partition of each file that readers see, by the file's path in the table; each row of a file was checked."""
    folder = Local(settings.folder(table).path)
    published = TableFolder.of(table, folder).published()
    assert published is not None
    found = {}
    for file in visible_files(folder, published.time):
        partition = Local(str(file)).parent.name
        rows = pq.read_table(str(file), columns=[PARTITION, "_hoodie_partition_path"], partitioning=None)
        assert {value for column in rows.columns for value in column.to_pylist()} <= {partition}, file
        found[f"{partition}/{file.name}"] = partition
    return found
