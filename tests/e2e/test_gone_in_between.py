"""A table is dropped, or has another key, after one of its waves: it stops alone or is read again."""

import time

import pytest

from lakeingest.errors import LakeIngestError
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

KEYS = {"even": "INT", "uneven": "INT", "texts": "VARCHAR(20)"}


@pytest.mark.parametrize("ddl", ["DROP TABLE t", "RENAME TABLE t TO away", "ALTER TABLE t RENAME COLUMN id TO number"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.long("keys that are planned in another way", only=("uneven", "texts"))
def test_the_other_tables_are_copied(pipe: Pipe, keys: str, ddl: str) -> None:
    """Whether the next wave is being planned or read then; once the table is back, the next run copies it."""
    step = 1000 if keys == "uneven" else 1
    for name in ("t", "z"):
        rows = ", ".join(f"({number * step}, {number})" for number in range(400))
        pipe.sql(f"CREATE TABLE {name} (id {KEYS[keys]} PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES {rows}")

    statements = [ddl]

    def work(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "t" and statements:
            time.sleep(1)  # the second wave is read, the third is not
            pipe.sql(statements.pop())

    if "COLUMN" in ddl:
        assert pipe.run(observe=work).stopped == ()
        pipe.assert_equal()
        return
    with pytest.raises(LakeIngestError, match="no such table") as raised:
        pipe.run(observe=work)
    assert raised.value.result is not None
    assert [one.table.name for one in raised.value.result.stopped] == ["t"]
    pipe.assert_equal("z")
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, z INT)", "INSERT INTO t VALUES (1, 2)")
    pipe.run()
    pipe.assert_equal()
