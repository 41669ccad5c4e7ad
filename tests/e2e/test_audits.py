"""Audits: what a commit holds is read back before readers see it, so a faulty writer stops the table, and no reader.

The faults are put into our own writers: whatever they return and count, they write something else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeingest.errors import AuditFailed
from lakeingest.lake.hudi import base_files
from lakeingest.lake.hudi import row_delta as hudi_row_delta
from lakeingest.lake.iceberg import data_files, merger
from lakeingest.lake.staged import staging
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.usefixtures("spark")
def test_smoke(pipe: Pipe) -> None:
    """Runs."""
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, a INT, b INT)",
        f"INSERT INTO orders VALUES {', '.join(f'({i}, {i}, {-i})' for i in range(60))}",
    )
    pipe.run()
    pipe.sql("UPDATE orders SET a = 1000 WHERE id < 10", "DELETE FROM orders WHERE id > 55", "INSERT INTO orders VALUES (100, 1, 2)")
    pipe.run()
    pipe.assert_equal()
    print(pipe.events[-3:])
