"""Which column of before a column of now was, by the statements in between."""

import pytest

from lakeingest.core.ddl.alteration import Act, Alteration, Change
from lakeingest.core.ddl.origins import origins
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.mysql.source_types import source_type

UNREAD = Alteration(is_barrier=True)


def table(names: str) -> TableSchema:
    """A table with these columns, whose key is the first one."""
    columns = tuple(Column(name, Kind.INT32, source_type("int")) for name in names.split())
    return TableSchema(TableId("shop", "t"), columns, (columns[0].name,))


def altered(*changes: str) -> Alteration:
    """One statement: `a>b` renames, `+a` adds, `-a` drops, `a` defines, `a>>b` defines under another name."""
    found = []
    for change in changes:
        old, _, new = change.partition(">")
        if change[0] in "+-":
            found.append(Change(Act.ADD if change[0] == "+" else Act.DROP, change[1:], change[1:]))
        elif new.startswith(">"):
            found.append(Change(Act.DEFINE, old, new[1:]))
        else:
            found.append(Change(Act.RENAME if new else Act.DEFINE, old, new or old))
    return Alteration(tuple(found))


@pytest.mark.parametrize(
    ("before", "statements", "now", "expected"),
    [
        pytest.param("id a", [], "id a b", "id a -", id="no statement is known"),
        pytest.param("id a b", [altered("a>c", "-b")], "id c", "id a", id="a rename beside a drop"),
        pytest.param("id a", [altered("a>b"), altered("b>>c"), altered("c")], "id c", "id a", id="a chain"),
        pytest.param("id a b", [altered("a>b", "b>a")], "id b a", "id a b", id="two exchange their names"),
        pytest.param("id a b", [altered("-a", "b>a", "+b")], "id a b", "id b -", id="a name is used again"),
        pytest.param("id a", [altered("-a"), altered("+a")], "id a", "id -", id="dropped and added"),
        pytest.param("id a", [altered("+b"), altered("b>c")], "id a c", "id a -", id="added and renamed"),
        pytest.param("id a", [altered("A>B")], "id b", "id a", id="names in another case"),
        pytest.param("id a", [altered("a>A")], "id A", "id a", id="another case of a name"),
        pytest.param("id a", [altered("a>b"), UNREAD, altered("b>c")], "id c", "id a", id="around what nobody reads"),
        pytest.param("id a", [UNREAD], "id b", "id -", id="a name that no statement tells"),
        pytest.param("id a b", [altered("a>c")], "id b a", "id b a", id="statements of other columns"),
        pytest.param("id a", [altered("a>b"), UNREAD], "id b c", "id a -", id="a column that nobody knows of"),
        pytest.param("id a", [altered("a>b")], "id a b", "id a -", id="two columns that lead to one"),
    ],
)
def test_a_column_is_what_the_statements_say(
    before: str, statements: list[Alteration], now: str, expected: str
) -> None:
    """Else what its name says."""
    found = origins(table(before), statements, table(now))
    assert [found[name] or "-" for name in now.split()] == expected.split()
