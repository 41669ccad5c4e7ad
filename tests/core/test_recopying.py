"""Whether a copy that DDL came into is copied again, as a table of cases."""

from dataclasses import replace

import pytest

from lakeingest.core.ddl.recopying import TRIES_MAX, Altered, Recopy, recopy

AT_DDL = Altered(
    by_ddl=True, by_definition=False, complete=True, restarted=False, paused=False, recopies=0, shown=False
)
BY_DEFINITION = replace(AT_DDL, by_ddl=False, by_definition=True)
FOLLOW = {"follows": True, "asks": False}
ASK = {"follows": True, "asks": True}
FREEZE = {"follows": False, "asks": False}


@pytest.mark.parametrize(
    ("table", "changes", "decided"),
    [
        (AT_DDL, FOLLOW, Recopy.YES),
        (AT_DDL, ASK, Recopy.YES),
        (AT_DDL, FREEZE, Recopy.NO),
        (replace(AT_DDL, by_ddl=False), FOLLOW, Recopy.NO),
        (BY_DEFINITION, FOLLOW, Recopy.NO),
        (replace(BY_DEFINITION, complete=False), FOLLOW, Recopy.YES),
        (replace(AT_DDL, paused=True), FOLLOW, Recopy.NO),
        (replace(AT_DDL, recopies=TRIES_MAX - 1), FOLLOW, Recopy.YES),
        (replace(AT_DDL, recopies=TRIES_MAX), FOLLOW, Recopy.NO),
        (replace(AT_DDL, complete=False, restarted=True), ASK, Recopy.NO),
        (replace(AT_DDL, complete=False, restarted=True), FOLLOW, Recopy.YES),
        (replace(AT_DDL, shown=True), FOLLOW, Recopy.SHOWN),
        (replace(AT_DDL, shown=True, paused=True), FOLLOW, Recopy.NO),
        (replace(AT_DDL, began_empty=True), FOLLOW, Recopy.NO),
    ],
)
def test_an_altered_table_is_copied_again(table: Altered, changes: dict[str, bool], decided: Recopy) -> None:
    """It is copied again unless someone else decides, or readers have what the run was to bring."""
    assert recopy(table, **changes) is decided
