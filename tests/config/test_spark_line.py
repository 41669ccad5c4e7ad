"""The line of Spark that is here chooses the jars."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lakeingest.config.spark_line import spark_line


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What was found is kept, in a process that never has another PySpark."""
    spark_line.cache_clear()
    yield
    spark_line.cache_clear()


def test_it_is_that_of_pyspark() -> None:
    """As PySpark itself says."""
    assert pyspark.__version__.startswith(f"{spark_line()}.")


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ('__version__: str = "3.5.9"', "3.5"),
        ("__version__: str = '4.1.4'", "4.1"),
        ("__version__ = '4.0.2.dev0'", "4.0"),
        ("__version__ = unknown", "3.5"),
        (None, "3.5"),
    ],
)
def test_each_release_writes_its_version_its_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, line: str
) -> None:
    """Also the PySpark of a cluster, which pip has not installed; without one it is that of lakeingest."""
    folder = tmp_path / "pyspark"
    if written is not None:
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(written)
    monkeypatch.delitem(sys.modules, "pyspark")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert spark_line() == line
