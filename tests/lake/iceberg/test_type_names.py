"""The names of Iceberg's types, which are known without PyIceberg."""

import subprocess
import sys

import pytest

from lakeingest.core.tables.schema import Column, Kind, SourceType
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.iceberg.files.type_names import type_name
from lakeingest.lake.iceberg.files.types import iceberg_type


@pytest.mark.parametrize("kind", Kind)
def test_a_type_is_named_as_pyiceberg_names_it(kind: Kind) -> None:
    """For every kind of column."""
    column = Column("a", kind, SourceType("int", "int"), nullable=True, precision=12, scale=3)
    assert type_name(column) == str(iceberg_type(column))


@pytest.mark.parametrize("name", [type_name, iceberg_type])
def test_a_name_that_iceberg_reserves_is_refused(name: object) -> None:
    """With a way out, by both functions."""
    assert callable(name)
    with pytest.raises(UnsupportedTable, match=r"column _POS: Iceberg reserves this name; use tables.exclude"):
        name(Column("_POS", Kind.INT32, SourceType("int", "int"), nullable=True))


def test_names_need_no_pyiceberg() -> None:
    """Whose import takes long."""
    code = "import sys, lakeingest.lake.iceberg.files.type_names; print('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
