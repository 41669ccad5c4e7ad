from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.ddl.any_ddl import changed_by_any_ddl
from lakeingest.core.tables.schema import NULL_DATES, Choices, Column, Kind, TableId, TableSchema
from lakeingest.mysql.source_types import source_type

ORDERS = TableSchema(
    TableId("shop", "orders"),
    (
        Column("note", Kind.STRING, source_type("varchar(20)")),
        Column("line", Kind.INT32, source_type("int"), nullable=False),
        Column("id", Kind.INT64, source_type("bigint"), nullable=False),
        Column("price", Kind.DECIMAL, source_type("decimal(9,2)"), precision=9, scale=2),
    ),
    key=("id", "line"),
)


@given(st.from_type(TableId))
def test_a_table_is_read_back_from_its_text(table: TableId) -> None:
    """`parse` is the inverse of `str`; a dot in the table's own name is kept."""
    assert TableId.parse(str(table)) == table


@pytest.mark.parametrize("text", ["", ".", "orders", "shop.", ".orders"])
def test_text_without_a_database_and_a_name_is_no_table(text: str) -> None:
    """Both parts are needed."""
    with pytest.raises(ValueError, match="not a table"):
        TableId.parse(text)


def test_names_follow_the_table_and_key_columns_the_key() -> None:
    """The key's order is its index's, not that of the columns."""
    assert ORDERS.names == ("note", "line", "id", "price")
    assert [column.name for column in ORDERS.key_columns] == ["id", "line"]
    assert ORDERS.ordered


def test_arithmetic_cuts_the_keys_of_a_single_integer_alone() -> None:
    """Not those of a YEAR: MySQL takes 70 for 1970."""
    single = replace(ORDERS, key=("id",))
    year = Column("made", Kind.INT32, source_type("year"), nullable=False)
    assert [one.countable for one in (single, ORDERS, replace(ORDERS, key=("note",)))] == [True, False, False]
    assert not replace(ORDERS, columns=(*ORDERS.columns, year), key=("made",)).countable


def test_a_declared_key_is_one_that_the_user_chose() -> None:
    """No index of the server keeps it unique."""
    assert replace(ORDERS, choices=Choices(key=("id",))).declared
    assert not ORDERS.declared


def test_comments_change_no_mapping() -> None:
    """A copy that was made before the comment, or by a version that did not read comments, stays valid."""
    described = replace(ORDERS, comment="orders", columns=tuple(replace(one, comment="c") for one in ORDERS.columns))
    assert (described, described.fingerprint) == (ORDERS, "ebeba475b8e08868")
    assert hash(described) == hash(ORDERS)


def test_a_column_knows_the_parts_of_its_type() -> None:
    """A message has the type as MySQL writes it."""
    size, place = (Column("c", Kind.STRING, source_type(text)) for text in ("enum('S','M')", "point"))
    assert (str(size.source_type), size.members, size.is_geometry) == ("enum('S','M')", ("S", "M"), False)
    assert (place.members, place.is_geometry) == ((), True)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("shop.orders", TableId("shop", "orders")),
        ("shop.a.b", TableId("shop", "a.b")),
        ("`a.b`.c.d", TableId("a.b", "c.d")),
        ("`a``b.c`.`d`", TableId("a`b.c", "`d`")),
    ],
)
def test_the_first_dot_outside_of_quotes_divides(text: str, table: TableId) -> None:
    """So that no two tables are written alike."""
    assert TableId.parse(text) == table
    assert str(table) == text


def test_an_impossible_schema_cannot_be_built() -> None:
    """Column names are distinct, and a key exists and is made of columns."""
    with pytest.raises(ValueError, match="two columns of the same name"):
        replace(ORDERS, columns=(*ORDERS.columns, ORDERS.columns[0]))
    for key in ((), ("nr",)):
        with pytest.raises(ValueError, match="not among the columns"):
            replace(ORDERS, key=key)


@pytest.mark.parametrize(
    "changed",
    [
        replace(ORDERS, table=TableId("shop", "lines")),
        replace(ORDERS, key=("line", "id")),
        replace(ORDERS, columns=ORDERS.columns[::-1]),
        *(
            replace(ORDERS, columns=(replace(ORDERS.columns[0], **change), *ORDERS.columns[1:]))
            for change in (
                {"name": "remark"},
                {"kind": Kind.BINARY},
                {"source_type": source_type("varchar(21)")},
                {"nullable": False},
                {"precision": 1},
                {"scale": 1},
                {"fraction": 6},
                {"length": 20},
            )
        ),
    ],
)
def test_whatever_decides_how_a_row_is_mapped_changes_the_fingerprint(changed: TableSchema) -> None:
    """A resume with another mapping is then seen; rebuilding the same schema changes nothing."""
    assert changed.fingerprint != ORDERS.fingerprint
    assert replace(ORDERS).fingerprint == ORDERS.fingerprint


def test_the_fingerprint_of_a_copy_of_an_earlier_version_is_the_same_today() -> None:
    """It is the digest of the types' text: another form of it would end every copy that exists."""
    columns = (
        Column("id", Kind.INT64, source_type("int unsigned"), nullable=False),
        Column("state", Kind.STRING, source_type("enum('new','it''s')")),
        Column("price", Kind.DECIMAL, source_type("decimal(9,2)"), precision=9, scale=2),
        Column("flags", Kind.BINARY, source_type("bit(9)")),
        Column("at", Kind.DATETIME, source_type("datetime(6)"), fraction=6, choice=NULL_DATES),
    )
    assert TableSchema(TableId("shop", "orders"), columns, ("id",)).fingerprint == "e5e643884b0ee3aa"


def test_metadata_columns_come_last_in_one_order_whatever_the_order_of_the_choice() -> None:
    """Soft deletes bring a column of their own, which is never null."""
    chosen = Choices(deletes="soft", metadata=("committed_at", "op", "position"))
    schema = replace(ORDERS, choices=chosen)
    added = [column.name for column in schema.lake_columns[len(ORDERS.columns) :]]
    assert added == ["_lakeingest_op", "_lakeingest_deleted", "_lakeingest_position", "_lakeingest_committed_at"]
    assert [column.nullable for column in schema.metadata] == [False, False, False, True]
    assert (schema.keeps_deleted, schema.names) == (True, ORDERS.names)
    assert [one.name for one in replace(ORDERS, choices=Choices(metadata=("op",))).metadata] == ["_lakeingest_op"]
    assert (ORDERS.lake_columns, ORDERS.keeps_deleted) == (ORDERS.columns, False)


def test_metadata_columns_change_the_fingerprint_and_their_order_in_the_choice_does_not() -> None:
    """A copy without them keeps the fingerprint that it was made with."""
    choices = [
        Choices(),
        Choices(deletes="soft"),
        Choices(metadata=("op",)),
        Choices(metadata=("op", "position")),
        Choices(deletes="soft", metadata=("op", "position")),
    ]
    prints = [replace(ORDERS, choices=one).fingerprint for one in choices]
    assert len(set(prints)) == len(prints)
    assert prints[0] == ORDERS.fingerprint
    assert replace(ORDERS, choices=Choices(metadata=("position", "op", "op"))).fingerprint == prints[3]


LAID_OUT = TableSchema(
    ORDERS.table,
    (
        Column("id", Kind.INT32, source_type("int")),
        Column("t", Kind.STRING, source_type("text"), charset="latin1", collation="latin1_bin"),
    ),
    ("id",),
    skipped=("g",),
    stored=("id", "g", "t"),
)


def moved(stored: tuple[str, ...] = ("g", "id", "t"), charset: str = "latin1") -> TableSchema:
    """The same table with another layout."""
    id_, text = LAID_OUT.columns
    return replace(LAID_OUT, stored=stored, columns=(id_, replace(text, charset=charset)))


def test_the_layout_tells_definitions_of_one_fingerprint_apart() -> None:
    """As far as it is known: the places of columns that are left out, and the charsets of texts."""
    assert LAID_OUT.layout == (("id", "g", "t"), ("", "latin1"), ("", "latin1_bin"), ("", ""))
    assert ORDERS.layout == (ORDERS.names, *[("",) * 4] * 3)
    others = [moved(), moved(LAID_OUT.stored, "utf8mb4")]
    assert {one.fingerprint for one in others} == {LAID_OUT.fingerprint}
    assert [LAID_OUT.reads_as(one) for one in (LAID_OUT, *others)] == [True, False, False]
    assert [LAID_OUT.reads_as(one) for one in (moved(()), moved(LAID_OUT.stored, ""), LAID_OUT.laid_out())] == [
        True
    ] * 3
    assert not LAID_OUT.reads_as(replace(LAID_OUT, key=("t",)))


def test_a_layout_is_known_where_all_definitions_agree() -> None:
    """Otherwise nothing is guessed."""
    assert LAID_OUT.laid_out(LAID_OUT).layout == LAID_OUT.layout
    assert moved().laid_out(LAID_OUT).layout == LAID_OUT.layout
    assert LAID_OUT.laid_out(LAID_OUT, moved()).layout == ((), *LAID_OUT.layout[1:])
    assert LAID_OUT.laid_out(LAID_OUT, moved(charset="gbk")).layout == ((), ("", ""), ("", "latin1_bin"), ("", ""))
    assert LAID_OUT.laid_out().layout == ((), *[("", "")] * 3)


@pytest.mark.parametrize(
    ("charset", "members", "are_true"),
    [
        ("utf8mb4", "'a','中'", True),
        ("utf8mb4", "'a','?'", False),
        ("gbk", "'?'", False),
        ("latin1", "'a','?'", True),
        ("", "'?'", False),
    ],
)
def test_a_question_mark_may_stand_for_another_character(charset: str, members: str, *, are_true: bool) -> None:
    """Unless the charset has none that the server cannot show."""
    column = Column("e", Kind.STRING, source_type(f"enum({members})"), charset=charset)
    assert column.has_exact_members is are_true


def test_columns_that_another_session_may_compute_anew_are_told() -> None:
    """Among those that are copied."""
    id_, text = LAID_OUT.columns
    computed = [replace(id_, name="f", generation="`id` + 1"), replace(text, name="h", generation="hour(`id`)")]
    assert changed_by_any_ddl(replace(LAID_OUT, columns=(id_, *computed), generated=("f", "h"))) == ("h",)
    assert changed_by_any_ddl(LAID_OUT) == ()


@pytest.mark.parametrize(("text", "is_bound"), [("float(12,4)", True), ("double(7,0)", True), ("float", False)])
def test_a_number_whose_digits_are_declared_may_be_cut_by_any_copy_of_the_table(text: str, *, is_bound: bool) -> None:
    """As MariaDB does with one that was larger before it had digits."""
    number = Column("f", Kind.FLOAT, source_type(text))
    assert changed_by_any_ddl(replace(LAID_OUT, columns=(*LAID_OUT.columns, number))) == (("f",) if is_bound else ())


def test_a_definition_hides_columns_that_are_only_stored() -> None:
    """Those that are skipped are not hidden, and where nothing is known nothing is."""
    stored = ("note", "line", "sum", "id", "price")
    skips = replace(ORDERS, skipped=("sum",))
    assert not ORDERS.hides
    assert not replace(skips, stored=stored).hides
    assert replace(skips, stored=(*stored, "DB_ROW_HASH_1")).hides
    assert replace(ORDERS, stored=(*ORDERS.names, "DB_ROW_HASH_1")).layout[0][-1] == "DB_ROW_HASH_1"


def test_a_definition_of_some_columns_keeps_the_key() -> None:
    """And the order of the columns; a name twice is one column."""
    columns = tuple(Column(name, Kind.INT32, source_type("int")) for name in "abcd")
    schema = TableSchema(TableId("shop", "t"), columns, ("c",))
    assert schema.with_columns(["d", "b", "d"]).names == ("b", "c", "d")
    assert schema.with_columns([]).names == schema.with_columns(["c"]).names == ("c",)
    assert schema.with_columns("abcd") == schema
