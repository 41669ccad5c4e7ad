"""The table with the history of a table: which columns it has, and how they follow DDL."""

from dataclasses import replace

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import begun, written
from lakeingest.core.companions.history_table import (
    KEY,
    NAMES,
    at,
    columns_of,
    described,
    followed,
    history_id,
    in_history,
    latest_of,
    new_history,
)
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

ORDERS = TableId("shop", "orders")


def column(name: str, kind: Kind = Kind.INT32, text: str = "int", *, precision: int = 0, scale: int = 0) -> Column:
    """A column of the source."""
    type_ = SourceType(text, text.partition("(")[0])
    return Column(name, kind, type_, precision=precision, scale=scale)


ID = column("id")
TABLE = TableSchema(ORDERS, (ID, column("price"), column("note", Kind.JSON, "json")), ("id",), comment="All orders")


def lift_to(history: TableSchema, after: TableSchema, origins: dict[str, str | None], **fills: object) -> Lift:
    """The step to another definition, which is not the same."""
    step = followed(history, after, origins, fills)
    assert step is not None
    assert step.before == history
    assert step.after.table == history.table
    assert step.after.key == (KEY,)
    assert step.after.names[-len(NAMES) :] == NAMES
    return step


def table(*columns: Column) -> TableSchema:
    """A definition of the table."""
    return TableSchema(ORDERS, (ID, *columns), ("id",))


def origins_of(step: Lift) -> dict[str, str | None]:
    """The origins of the columns that the table has or had."""
    return {name: old for name, old in zip(step.after.names, step.origins, strict=True) if name not in NAMES}


def test_a_history_has_the_columns_of_its_table_and_of_its_versions() -> None:
    """Each column but those of the versions can be NULL, because versions of other times may lack it."""
    history = new_history(TABLE)
    assert (history.table, history.key) == (history_id(ORDERS), (KEY,))
    assert str(history.table) == "shop.orders__history"
    assert history.names == (*TABLE.names, *NAMES)
    assert all(column.nullable for column in columns_of(history))
    assert history.comment == "Every version of the rows of shop.orders: All orders"
    assert new_history(replace(TABLE, comment="")).comment == "Every version of the rows of shop.orders"


def test_a_history_needs_names_for_itself() -> None:
    """A column of such a name gets a free one. Engines take names in upper and lower case for the same."""
    assert in_history(TABLE) is TABLE
    columns = (column("Valid_From"), column("VALID_FROM"), column("valid_to"), column("VALID_TO__1"))
    renamed = in_history(TableSchema(ORDERS, columns, ("valid_to", "Valid_From")))
    assert renamed.names == ("Valid_From__1", "VALID_FROM__2", "valid_to__2", "VALID_TO__1")
    assert renamed.key == ("valid_to__2", "Valid_From__1")
    assert new_history(renamed).names == (*renamed.names, *NAMES)


def test_nothing_is_done_where_the_lake_stores_the_same() -> None:
    """Such as a longer text, or a text that was JSON."""
    history = new_history(TABLE)
    after = table(column("price"), column("note", Kind.STRING, "longtext"))
    assert followed(history, after, {name: name for name in after.names}, {}) is None


def test_a_dropped_column_stays_and_a_new_one_has_its_fill() -> None:
    """Versions before have the value that the DDL gave to rows, or NULL."""
    history = new_history(TABLE)
    after = table(column("price"), column("shop"), column("till"))
    step = lift_to(history, after, {"id": "id", "price": "price", "shop": None, "till": None}, shop=7)
    assert origins_of(step) == {"id": "id", "price": "price", "shop": None, "till": None, "note": "note"}
    assert dict(step.fills) == {"shop": 7}


def test_a_renamed_column_goes_on_under_its_new_name() -> None:
    """Also if two columns change their names, or if the old name is that of a new column."""
    history = new_history(table(column("a"), column("b")))
    swapped = lift_to(history, table(column("b"), column("a")), {"id": "id", "b": "a", "a": "b"})
    assert origins_of(swapped) == {"id": "id", "b": "a", "a": "b"}
    moved = lift_to(history, table(column("c"), column("a")), {"id": "id", "c": "a", "a": None})
    assert origins_of(moved) == {"id": "id", "c": "a", "a": None, "b": "b"}


def test_an_older_column_of_the_same_name_gets_a_number() -> None:
    """It keeps its values, and the number is one that no column has."""
    history = new_history(table(column("a"), column("b__1")))
    dropped = lift_to(history, table(column("c")), {"id": "id", "c": None}).after
    again = lift_to(dropped, table(column("c"), column("A"), column("b")), {"id": "id", "c": "c", "A": None, "b": None})
    assert origins_of(again)["a__1"] == "a"
    third = lift_to(again.after, table(column("b")), {"id": "id", "b": None})
    assert origins_of(third)["b__2"] == "b"


def test_a_wider_type_goes_on_and_another_type_is_a_new_column() -> None:
    """A table that was copied anew may have any type."""
    history = new_history(table(column("n"), column("d", Kind.DECIMAL, "decimal(5,2)", precision=5, scale=2)))
    wide = table(column("n", Kind.INT64, "bigint"), column("d", Kind.DECIMAL, "decimal(9,2)", precision=9, scale=2))
    step = lift_to(history, wide, {name: name for name in wide.names})
    assert origins_of(step) == {"id": "id", "n": "n", "d": "d"}
    text = table(column("n", Kind.STRING, "text"), column("d"))
    step = lift_to(step.after, text, {name: name for name in text.names})
    assert origins_of(step) == {"id": "id", "n": None, "d": None, "n__1": "n", "d__1": "d"}
    assert [column.kind for column in columns_of(step.after)] == [
        Kind.INT32,
        Kind.STRING,
        Kind.INT32,
        Kind.INT64,
        Kind.DECIMAL,
    ]


def test_names_that_clash_are_no_definition() -> None:
    """Callers give free names before (`in_history`)."""
    with pytest.raises(ValueError, match="two columns of the same name"):
        new_history(table(column("valid_to")))


def test_comments_are_those_of_the_table() -> None:
    """A definition that was stored has none; a column that the table has no more keeps what it has."""
    history = new_history(table(replace(column("a"), comment="amount"), replace(column("b"), comment="gone")))
    stored = replace(history, comment="", columns=tuple(replace(one, comment="") for one in history.columns))
    shown = described(stored, table(replace(column("a"), comment="amount")))
    assert (shown.column("a").comment, shown.column("b").comment) == ("amount", "")
    assert shown.column("valid_from").comment.startswith("since when")
    assert shown.comment == history.comment


def test_the_greatest_time_is_in_the_commit() -> None:
    """So a run goes on exactly where the last one died."""
    new = begun(new_history(TABLE))
    assert latest_of(new) == 0
    progress = at(written(new, ReadTo(Place(1, 1, 4)), 3), 7_000_000)
    assert latest_of(progress) == 7_000_000
    assert progress.position is not None
    assert replace(progress, position=replace(progress.position, history=None)) == written(
        new, ReadTo(Place(1, 1, 4)), 3
    )
    assert latest_of(replace(new, phase=new.phase.NEW, position=None)) == 0
