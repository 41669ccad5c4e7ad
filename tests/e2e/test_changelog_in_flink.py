"""The table of changes in Flink, as a stream: each row once and in order, also those that come while it reads."""

from itertools import islice
from pathlib import Path

import pytest

from lakeingest.config.catalog_kinds import kind_of
from lakeingest.config.changelog import Changelog
from lakeingest.core.schema import TableId
from tests.e2e.logged_rows import log_of
from tests.e2e.pipe import Pipe
from tests.servers.debezium import can_compile
from tests.servers.flink import streamed

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

COLUMNS = ("_lakeingest_number", "_lakeingest_op", "_lakeingest_origin", "_lakeingest_position", "id", "v")


@pytest.mark.local
@pytest.mark.skipif(not can_compile(), reason="needs a Java with a compiler, as Debian's openjdk-17-jdk-headless")
@pytest.mark.long("starts Flink, and fetches its jars the first time")
def test_flink_reads_the_table_of_changes_as_a_stream(pipe: Pipe, tmp_path: Path) -> None:
    """The rows of the copy, and then changes of a later publish, while the same job goes on."""
    pipe.config = pipe.config.model_copy(update={"changelog": Changelog(table=True)})
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'ü')")
    pipe.run()
    target, table = pipe.config.target, TableId(pipe.database, "t")
    catalog = kind_of(target.catalog).spark(target.catalog, target.warehouse) | {"default-database": pipe.database}
    columns = ", ".join(f"`{name}`" for name in COLUMNS)
    options = "OPTIONS('streaming'='true', 'monitor-interval'='1s')"
    query = f"SELECT {columns} FROM lake.`{pipe.database}`.`t__changelog` /*+ {options} */"
    with streamed(catalog, query, tmp_path / "flink.log") as rows:
        found = list(islice(rows, len(log_of(target, table))))
        assert len(found) > 3, (tmp_path / "flink.log").read_text()[-4000:]
        pipe.sql("UPDATE t SET v = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 'd')")
        pipe.run()
        found += islice(rows, 4)
    assert {row[0] for row in found} == {"+I"}  # to Flink each row of the table is one that was added
    wanted = [[str(row[name]) for name in COLUMNS] for row in log_of(target, table)]
    assert sorted(row[1:] for row in found) == sorted(wanted)
    assert [row[2] for row in sorted(found, key=lambda row: int(row[1]))][-4:] == ["-U", "+U", "-D", "+I"]
