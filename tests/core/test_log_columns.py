"""The columns of a changelog as a table: they are only added, and older rows keep their values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.companions.log_columns import NUMBER, columns_of, followed, lift_of, new_log
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

Columns = dict[str, str]  # of the log, by those of the table
LOG, TABLE = TableId("shop", "orders__changelog"), TableId("shop", "orders")
TYPES = {
    "int": (Kind.INT32, SourceType("int", "int")),
    "bigint": (Kind.INT64, SourceType("bigint", "bigint")),
    "unsigned": (Kind.UINT64, SourceType("bigint unsigned", "bigint", unsigned=True)),
    "enum": (Kind.STRING, SourceType("enum('a')", "enum", members=("a",))),
    "varchar": (Kind.STRING, SourceType("varchar(9)", "varchar", size=9)),
    "json": (Kind.JSON, SourceType("json", "json")),
    "micros": (Kind.MICROS, SourceType("time(6)", "time", size=6)),
    "float": (Kind.FLOAT, SourceType("float", "float")),
    "double": (Kind.DOUBLE, SourceType("double", "double")),
    "date": (Kind.DATE, SourceType("date", "date")),
    "vector": (Kind.VECTOR, SourceType("vector(3)", "vector", size=3)),
}


def table(**columns: str) -> TableSchema:
    """A table with the key `id` and these columns, by the names of TYPES; a decimal as `decimal(5,2)`."""
    return TableSchema(TABLE, (column("id", "int"), *(column(*each) for each in columns.items())), ("id",))


def column(name: str, kind: str) -> Column:
    """A NOT NULL column."""
    if kind.startswith("decimal"):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        source = SourceType(kind, "decimal", size=precision)
        return Column(name, Kind.DECIMAL, source, nullable=False, precision=precision, scale=scale)
    return Column(name, TYPES[kind][0], TYPES[kind][1], nullable=False)


def own(log: TableSchema) -> dict[str, tuple[Kind, int]]:
    """The columns of the log that have the table's values: their kinds and precisions."""
    return {each.name: (each.kind, each.precision) for each in log.columns if not each.name.startswith("_lakeingest_")}


def test_a_log_has_the_columns_of_its_table() -> None:
    """Each may be NULL, because a row of DDL has none. Its key is the number of the row."""
    log = new_log(LOG, table(name="varchar", price="decimal(5,2)", doc="json", took="micros"))
    assert log.key == (NUMBER,)
    assert own(log) == {
        "id": (Kind.INT32, 0),
        "name": (Kind.STRING, 0),
        "price": (Kind.DECIMAL, 5),
        "doc": (Kind.STRING, 0),
        "took": (Kind.INT64, 0),
    }
    assert all(each.nullable for each in log.columns if each.name in own(log))


def step(
    log: TableSchema, before: TableSchema, after: TableSchema, **origins: str | None
) -> tuple[TableSchema, Columns]:
    """The log after DDL between two definitions, and its columns. `origins`: of those that are not what they were."""
    old = columns_of(new_log(LOG, before), before, {name: name for name in before.names})
    came = {name: name if name in before.names else None for name in after.names} | origins
    columns = columns_of(log, after, old, came)
    return followed(log, after, columns), columns


@pytest.mark.parametrize(
    ("before", "after", "columns"),
    [
        ({"a": "int"}, {}, {"a": (Kind.INT32, 0)}),
        ({"a": "int"}, {"b": "int"}, {"a": (Kind.INT32, 0), "b": (Kind.INT32, 0)}),
        ({"a": "int"}, {"a": "bigint"}, {"a": (Kind.INT64, 0)}),
        ({"a": "bigint"}, {"a": "int"}, {"a": (Kind.INT64, 0)}),
        ({"a": "int"}, {"a": "unsigned"}, {"a": (Kind.INT32, 0), "a_2": (Kind.UINT64, 0)}),
        ({"a": "int"}, {"a": "varchar"}, {"a": (Kind.INT32, 0), "a_2": (Kind.STRING, 0)}),
        ({"a": "enum"}, {"a": "json"}, {"a": (Kind.STRING, 0)}),
        ({"a": "float"}, {"a": "double"}, {"a": (Kind.FLOAT, 0), "a_2": (Kind.DOUBLE, 0)}),
        ({"a": "decimal(5,2)"}, {"a": "decimal(9,2)"}, {"a": (Kind.DECIMAL, 9)}),
        ({"a": "decimal(5,2)"}, {"a": "decimal(9,3)"}, {"a": (Kind.DECIMAL, 5), "a_2": (Kind.DECIMAL, 9)}),
        (
            {"a": "int", "a_2": "int"},
            {"a": "date", "a_2": "int"},
            {"a": (Kind.INT32, 0), "a_2": (Kind.INT32, 0), "a_3": (Kind.DATE, 0)},
        ),
        (
            {"a": "int"},
            {"a": "date", "a_2": "date"},
            {"a": (Kind.INT32, 0), "a_3": (Kind.DATE, 0), "a_2": (Kind.DATE, 0)},
        ),
        ({"Name": "int"}, {"name": "int"}, {"Name": (Kind.INT32, 0)}),
        ({"Name": "int"}, {"name": "date"}, {"Name": (Kind.INT32, 0), "name_2": (Kind.DATE, 0)}),
        ({"a": "vector"}, {"a": "vector"}, {"a": (Kind.VECTOR, 0)}),
    ],
)
def test_columns_are_only_added(
    before: dict[str, str], after: dict[str, str], columns: dict[str, tuple[Kind, int]]
) -> None:
    """One stays where the new type holds its values, and is wider then; else another one stands beside it."""
    log = new_log(LOG, table(**before))
    found = columns_of(log, table(**after), {name: name for name in table(**before).names})
    later = followed(log, table(**after), found)
    assert own(later) == {"id": (Kind.INT32, 0), **columns}
    lift_of(log, later)  # a NotLiftable would say that older rows lose a value
    assert followed(later, table(**after), found) is later


def test_no_two_columns_of_a_table_share_one_of_the_log() -> None:
    """Whatever numbers are in their names: older rows would have values of the other one."""
    before, after = table(x="int", x_2="varchar"), table(x="varchar", x_2="varchar")
    _, columns = step(new_log(LOG, before), before, after)
    assert columns == {"id": "id", "x": "x_3", "x_2": "x_2"}


def test_a_column_that_was_dropped_and_is_added_again_is_another_one() -> None:
    """Older rows keep what they had, and have NULL in the new column."""
    with_x, without = table(x="int"), table()
    log = new_log(LOG, with_x)
    log, columns = step(log, with_x, without)
    assert columns == {"id": "id"}
    log, columns = step(log, without, with_x)
    assert columns == {"id": "id", "x": "x_2"}
    assert own(log) == {"id": (Kind.INT32, 0), "x": (Kind.INT32, 0), "x_2": (Kind.INT32, 0)}


def test_columns_that_change_their_names_with_each_other_are_others() -> None:
    """The name alone does not make a column the same one."""
    both = table(a="int", b="int")
    _, columns = step(new_log(LOG, both), both, both, a="b", b="a")
    assert columns == {"id": "id", "a": "a_2", "b": "b_2"}
    _, columns = step(new_log(LOG, both), both, both, b=None)  # dropped and added in one statement
    assert columns == {"id": "id", "a": "a", "b": "b_2"}


@given(st.lists(st.dictionaries(st.sampled_from(["a", "A_2", "a_2", "b"]), st.sampled_from(sorted(TYPES))), max_size=8))
def test_any_ddl_keeps_every_column(steps: list[dict[str, str]]) -> None:
    """Older columns keep their names, and every definition finds a column for each of its own."""
    log, found = new_log(LOG, table()), {"id": "id"}
    ever = {"id": "id"}  # the column of the table that each column of the log has values of
    for columns in steps:
        if len({name.casefold() for name in columns}) < len(columns):
            continue  # no server has such a table
        definition = table(**columns)
        before, found = found, columns_of(log, definition, found)
        later = followed(log, definition, found)
        lift_of(log, later)
        for name, column in found.items():
            is_new = column not in log.names
            assert is_new or before[ever[column]] == column
            assert is_new or ever[column].casefold() == name.casefold()
            ever[column] = name
        assert later.names[: len(log.names)] == log.names
        assert found.keys() == set(definition.names)
        assert len(set(found.values())) == len(found)
        assert set(found.values()) <= set(later.names)
        assert columns_of(later, definition, found) == found
        assert followed(later, definition, found) is later
        log = later
