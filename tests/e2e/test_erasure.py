"""What docs/howto/erase-rows.md says leaves no value of a row in the copy, its history, the spool and the pages."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Record

from lakeingest.commands.signal import ask
from lakeingest.config import Quality
from lakeingest.config.place import Place
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.local]

CANARY = "canary-of-A"  # short enough for the bounds of a file, which have 16 characters
SUITE = """
expectations:
  - {type: expect_column_values_to_not_match_regex, kwargs: {column: name, regex: canary}, severity: warning}
"""


def texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """The contents of each file below a folder, decompressed."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.suffix == ".parquet":
            yield file, str(pq.ParquetFile(file).read().to_pylist())
        elif file.suffix == ".avro":
            with AvroFile[Record](PyArrowFileIO().new_input(str(file))) as records:
                yield file, " ".join(map(_deep, records))
        yield file, file.read_bytes().decode(errors="replace")


def _deep(record: object) -> str:
    """A record of a manifest, and the records in it, as a text."""
    inside = getattr(record, "_data", None)
    return str(record) if inside is None else " ".join(map(_deep, inside))


def with_canary(*folders: Path) -> set[str]:
    """The files that hold the row."""
    return {path.name for folder in folders for path, text in texts(folder) if CANARY in text}


@pytest.mark.formats
@pytest.mark.long("maintains a table several times")
def test_an_erased_row_is_nowhere(pipe: Pipe, lake_format: str, tmp_path: Path) -> None:
    """Deleted in the source, then by the steps of the page, in its order."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.people.yml").write_text(SUITE)
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(suites))})
    pipe.sql(
        "CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(100))",
        f"INSERT INTO people VALUES (1, 'a'), (7, '{CANARY}'), (9, 'b')",
    )
    pipe.run()
    pipe.sql(f"UPDATE people SET name = '{CANARY} again' WHERE id = 7")
    pipe.run()
    pipe.sql("DELETE FROM people WHERE id = 7", "INSERT INTO people VALUES (10, 'c')")
    pipe.run()
    warehouse, state = pipe.config.target.warehouse.path, pipe.config.state.path
    suffixes = {Path(name).suffix for name in with_canary(warehouse, state)}
    assert suffixes >= {".parquet", ".html", ".json"} | ({".avro"} if lake_format == "iceberg" else set())

    history = pipe.config.target.history.model_copy(
        update={"keep": timedelta(0), "least": 1, "most": 1, "readers": timedelta(0)}
    )
    target = pipe.config.target.model_copy(update={"history": history})
    changelog = pipe.config.changelog.model_copy(update={"keep": timedelta(0)})
    pipe.config = pipe.config.model_copy(update={"target": target, "changelog": changelog})
    if lake_format == "iceberg":
        name = f"{target.catalog.name}.{pipe.database}.people"
        options = "map('rewrite-all', 'true')"
        pipe.spark.sql(f"CALL {target.catalog.name}.system.rewrite_data_files(table => '{name}', options => {options})")
    for number in range(20, 23):
        pipe.sql(f"INSERT INTO people VALUES ({number}, 'd')")
        pipe.run()
        [done] = ask(pipe.config, "maintain", [f"{pipe.database}.people"], spark=pipe.spark)
        assert done.state == "done", done.why
    shutil.rmtree(state / "quality" / f"{pipe.database}.people")
    assert with_canary(warehouse, state) == set()
    pipe.assert_equal()
