"""dlt: copies a table once into Iceberg, with the Python that has dlt.

Arguments: HOST PORT USER DATABASE TABLE FOLDER. It prints a JSON line when dlt is imported.
"""

import json
import os
import sys
import time

import dlt
import pyarrow as pa
from dlt.sources.sql_database import sql_table


def signed(rows: pa.Table) -> pa.Table:
    """The rows without unsigned numbers, which Spark does not read."""
    types = [pa.int64() if pa.types.is_unsigned_integer(field.type) else field.type for field in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True))))


def main() -> None:
    host, port, user, database, table, folder = sys.argv[1:]
    os.environ |= {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "DESTINATION__FILESYSTEM__BUCKET_URL": f"file://{folder}/lake",
    }
    print(json.dumps({"event": "ready", "at": time.time()}), flush=True)
    rows = sql_table(
        f"mysql+pymysql://{user}@{host}:{port}/{database}",
        table,
        backend="connectorx",
        backend_kwargs={"conn": f"mysql://{user}@{host}:{port}/{database}", "return_type": "arrow_stream"},
    )
    pipeline = dlt.pipeline(
        "benchmark", pipelines_dir=f"{folder}/pipelines", destination="filesystem", dataset_name=database
    )
    pipeline.run(rows.add_map(signed), table_format="iceberg", loader_file_format="parquet").raise_on_failed_jobs()


if __name__ == "__main__":
    main()
