"""Each kind of DDL does to a copy what the reference says."""

import pytest

from lakeingest.errors import LakeIngestError
from lakeingest.pipeline.events import Lifted, StartedOver
from tests.e2e.ddl_kinds import COLUMNS, KINDS, ROW, Outcome
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

TABLES = {f"t{number}": kind for number, kind in enumerate(kind for kinds in KINDS.values() for kind in kinds)}


def outcome_of(pipe: Pipe, name: str, stopped: set[str]) -> Outcome:
    """What the last run did with the table."""
    again = {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)}
    lifted = {one.table.name for one in pipe.seen(Lifted) if isinstance(one, Lifted)}
    if name in stopped:
        return Outcome.STOPS
    return Outcome.READ_AGAIN if name in again else Outcome.FOLLOWED if name in lifted else Outcome.NOTHING


@pytest.mark.long("some fifty tables")
def test_each_kind_of_ddl_does_what_is_documented(pipe: Pipe) -> None:
    """All of them in one run: a table that stops keeps its rows, and all others are equal to their sources."""
    for name in TABLES:
        rows = ", ".join(f"({ROW.format(id=number)})" for number in range(5))
        pipe.sql(f"CREATE TABLE {name} ({COLUMNS})", f"INSERT INTO {name} VALUES {rows}")
    pipe.run()
    pipe.events.clear()
    for name, kind in TABLES.items():
        pipe.sql(f"UPDATE {name} SET u = 8 WHERE id = 2", f"DELETE FROM {name} WHERE id = 3")
        pipe.sql(*(statement.format(t=name) for statement in kind.statements))
    with pytest.raises(LakeIngestError) as raised:
        pipe.run()
    assert raised.value.result is not None
    updated = {one.table.name for one in raised.value.result.tables if one.published}
    stopped = (TABLES.keys() - updated) | {one.table.name for one in raised.value.result.stopped}
    found = {kind.shown: outcome_of(pipe, name, stopped) for name, kind in TABLES.items()}
    assert found == {kind.shown: kind.outcome for kind in TABLES.values()}
    pipe.assert_equal(*(TABLES.keys() - stopped))
    assert all(len(pipe.rows(name)) in {4, 5} for name in stopped)
