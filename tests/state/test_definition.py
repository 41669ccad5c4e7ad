"""What readers of the changelog learn about a table: its definition when it was copied, and its first position."""

import json
from dataclasses import replace

import pytest

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Place, Position
from lakeingest.core.tables.column_choice import ColumnChoice
from lakeingest.core.tables.schema import Choices, Column, Kind, TableId, TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.state.definition import (
    FOLDER,
    Definition,
    as_property,
    defined_tables,
    definition,
    definition_of,
    keep_definition,
    keep_first_position,
    keep_layout,
    keep_next,
    keep_restart,
    restore_definition,
    schema_from_json,
    schema_to_json,
)

SCHEMA = TableSchema(
    TableId("shop.eu", "orders/2"),
    (
        Column("id", Kind.INT32, source_type("int"), nullable=False),
        Column("price", Kind.DECIMAL, source_type("decimal(9,2)"), True, 9, 2),
        Column("state", Kind.STRING, source_type("enum('new','it''s','a,b')")),
    ),
    ("id",),
    Choices(key=("id",), zero_dates="null", metadata=("op", "position")),
    ("left out",),
    ("price",),
    "PRIMARY",
)
FIRST = Position("3e11fa47-71ca-11e1-9e33-c80aa9429562", 1, FilePosition("binlog.000007", 4), GtidSet(), History(1))


def test_a_definition_comes_back_as_it_was(tmp_path: Local) -> None:
    """With every choice; a table without one has none."""
    assert definition(tmp_path, SCHEMA.table) is None
    keep_definition(tmp_path, SCHEMA)
    assert definition(tmp_path, SCHEMA.table) == Definition(SCHEMA)
    keep_first_position(tmp_path, SCHEMA, None, FIRST)
    known = definition(tmp_path, SCHEMA.table)
    assert known is not None
    assert known.first is not None
    assert (known.schema, known.first.place, known.first.history) == (SCHEMA, FIRST.place, None)


def test_a_first_position_stays_as_long_as_the_definition_does(tmp_path: Local) -> None:
    """Each run keeps the definition again; another one is of another copy."""
    keep_first_position(tmp_path, SCHEMA, None, FIRST)
    keep_definition(tmp_path, SCHEMA)
    known = definition(tmp_path, SCHEMA.table)
    assert known is not None
    assert known.first is not None
    other = TableSchema(SCHEMA.table, SCHEMA.columns[:1], ("id",))
    keep_definition(tmp_path, other)
    assert definition(tmp_path, SCHEMA.table) == Definition(other)


def test_a_comment_keeps_the_first_position(tmp_path: Local) -> None:
    """It is no other definition, and not part of the document, which the version before this one reads too."""
    described = replace(SCHEMA, comment="orders", columns=tuple(replace(one, comment="c") for one in SCHEMA.columns))
    keep_first_position(tmp_path, SCHEMA, None, FIRST)
    keep_definition(tmp_path, described)
    known = definition(tmp_path, SCHEMA.table)
    assert known is not None
    assert known.first is not None
    keep_first_position(tmp_path, described, None, FIRST)
    assert not any("comment" in file.read_text() for file in (tmp_path / FOLDER).iterdir())


def test_a_copy_that_is_started_over_has_another_first_position(
    tmp_path: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the first publish after it; a later publish is not the first one. Where it was started over is kept."""
    monkeypatch.setattr("time.time", lambda: 1_000.5)
    keep_first_position(tmp_path, SCHEMA, None, FIRST)
    keep_restart(tmp_path, SCHEMA, 6, FIRST.place)
    keep_restart(tmp_path, SCHEMA, 7)
    assert definition(tmp_path, SCHEMA.table) == Definition(SCHEMA, None, 7, restarted=FIRST.place)
    keep_definition(tmp_path, SCHEMA)
    keep_first_position(tmp_path, SCHEMA, 7, FIRST)
    known = definition(tmp_path, SCHEMA.table)
    first = replace(FIRST, history=None)
    assert known == Definition(SCHEMA, first, 7, first_at=1_000, restarted=FIRST.place)
    keep_first_position(tmp_path, SCHEMA, 8, replace(FIRST, at=FilePosition("binlog.000009", 4)))
    assert definition(tmp_path, SCHEMA.table) == known


def test_a_damaged_definition_is_named_and_replaced(tmp_path: Local) -> None:
    """By the next run."""
    keep_definition(tmp_path, SCHEMA)
    [file] = (tmp_path / FOLDER).iterdir()
    for text in ("", "{}", '{"schema": {}, "first": null}'):
        file.write_text(text)
        with pytest.raises(StateUnreadable, match="remove it and run again"):
            definition(tmp_path, SCHEMA.table)
    keep_definition(tmp_path, SCHEMA)
    assert definition(tmp_path, SCHEMA.table) == Definition(SCHEMA)


def laid_out(charset: str) -> TableSchema:
    """A table with a text of this charset, beside a column that is left out."""
    text = Column("t", Kind.STRING, source_type("text"), charset=charset, collation=charset and f"{charset}_bin")
    columns = (Column("id", Kind.INT32, source_type("int"), nullable=False), text)
    return TableSchema(SCHEMA.table, columns, ("id",), skipped=("g",), stored=("id", "g", "t"))


def kept(folder: Local) -> TableSchema:
    """The definition that is kept of the one fingerprint."""
    found = definition_of(folder, SCHEMA.table, laid_out("").fingerprint)
    assert found is not None
    return found


def test_the_layout_comes_back_and_an_earlier_version_has_none(tmp_path: Local) -> None:
    """What is not kept is not known, until it is read."""
    keep_definition(tmp_path, laid_out("latin1"))
    assert kept(tmp_path).layout == laid_out("latin1").layout
    [file] = (tmp_path / FOLDER).iterdir()
    document = json.loads(file.read_text())
    del document["schema"]["layout"]
    file.write_text(json.dumps(document))
    assert kept(tmp_path).layout == ((), *[("", "")] * 3)
    keep_definition(tmp_path, laid_out("latin1"))
    assert kept(tmp_path).layout == ((), *[("", "")] * 3)
    keep_layout(tmp_path, laid_out("latin1"))
    assert kept(tmp_path).layout == laid_out("latin1").layout
    document = json.loads(file.read_text())
    del document["schema"]["layout"]["collations"]
    file.write_text(json.dumps(document))
    assert kept(tmp_path).layout == (("id", "g", "t"), ("", "latin1"), ("", ""), ("", ""))


def test_of_two_layouts_with_one_fingerprint_what_differs_is_not_known(tmp_path: Local) -> None:
    """A run may begin at rows of either; a new copy has only rows of the new one."""
    keep_definition(tmp_path, laid_out("latin1"))
    keep_next(tmp_path, laid_out("latin1"), laid_out("gbk"))
    assert kept(tmp_path).layout == (("id", "g", "t"), *[("", "")] * 3)
    keep_definition(tmp_path, laid_out("utf8mb4"), is_new=True)
    assert kept(tmp_path).layout == laid_out("utf8mb4").layout


def test_a_definition_is_restored_from_a_publish(tmp_path: Local) -> None:
    """But not another one, that of another table, or one that is damaged."""
    other = replace(SCHEMA, table=TableId("shop.eu", "other"))
    for fingerprint, given in (
        ("another", as_property(SCHEMA)),
        (other.fingerprint, as_property(other)),
        (SCHEMA.fingerprint, ""),
        (SCHEMA.fingerprint, as_property(SCHEMA)[:-8]),
    ):
        restore_definition(tmp_path, SCHEMA.table, fingerprint, given)
        assert definition(tmp_path, SCHEMA.table) is None
    restore_definition(tmp_path, SCHEMA.table, SCHEMA.fingerprint, as_property(SCHEMA))
    assert definition(tmp_path, SCHEMA.table) == Definition(SCHEMA)
    columns = tuple(Column(f"column_{number}", Kind.INT64, source_type("bigint")) for number in range(200))
    assert len(as_property(replace(SCHEMA, columns=(*SCHEMA.columns, *columns)))) < 4000  # which every catalog holds


def test_the_tables_of_a_state_folder_are_known_by_its_files(tmp_path: Local) -> None:
    """Whatever signs are in their names, and also where the name of a file says nothing."""
    tables = [TableId("shop", "orders"), TableId("a.b", "c/d%"), TableId("shop", "`x` y")]
    for table in tables:
        keep_definition(tmp_path, replace(SCHEMA, table=table))
    assert sorted(defined_tables(tmp_path)) == sorted(tables)
    folder = tmp_path / "definitions"
    (folder / "shop.orders.json").rename(folder / "1f2e.json")
    assert sorted(defined_tables(tmp_path)) == sorted(tables)
    (folder / "1f2e.json").write_text("{}")
    with pytest.raises(StateUnreadable, match="cannot be read"):
        defined_tables(tmp_path)
    assert defined_tables(tmp_path / "none") == []


def test_the_choice_of_columns_comes_back_and_an_earlier_version_has_none() -> None:
    """A document without such a choice is one that an earlier version can read."""
    chosen = ColumnChoice(("id", "t"), ("g",), ("t",), (), "1234abcd")
    schema = replace(laid_out("latin1"), choices=Choices(columns=chosen))
    read = schema_from_json(json.loads(json.dumps(schema_to_json(schema))))
    assert (read, read.fingerprint) == (schema, schema.fingerprint)
    assert "columns" not in schema_to_json(laid_out("latin1"))["choices"]


def test_names_in_the_copy_come_back_and_an_earlier_version_has_none() -> None:
    """Also those of columns that are not there yet. An earlier version can read a document without names."""
    plain = laid_out("latin1")
    choice = ColumnChoice(rename=(("T", "text"), ("later", "soon")))
    columns = tuple(column.named(column.name, choice) for column in plain.columns)
    schema = replace(plain, columns=columns, choices=Choices(columns=choice))
    read = schema_from_json(json.loads(json.dumps(schema_to_json(schema))))
    assert (read, read.fingerprint, read.layout) == (schema, schema.fingerprint, schema.layout)
    assert (read.choices.columns.rename, read.names, read.source_names) == (choice.rename, ("id", "text"), ("id", "t"))
    hashed = replace(plain, choices=Choices(columns=ColumnChoice(hash=("t",))))
    document = schema_to_json(hashed)
    assert not {"rename", "renamed_from"} & {*document["choices"]["columns"], *document["columns"][0]}


def test_types_in_the_copy_come_back_and_an_earlier_version_has_none() -> None:
    """Also those of columns that are not there yet. An earlier version can read a document without types."""
    plain = laid_out("latin1")
    choice = ColumnChoice(cast=(("t", "string"), ("later", "bigint")))
    schema = replace(plain, choices=Choices(columns=choice))
    read = schema_from_json(json.loads(json.dumps(schema_to_json(schema))))
    assert (read, read.choices.columns.cast) == (schema, choice.cast)
    assert "rename" not in schema_to_json(schema)["choices"]["columns"]
    renamed = replace(plain, choices=Choices(columns=ColumnChoice(exclude=("x",), rename=(("t", "u"),))))
    assert "cast" not in schema_to_json(renamed)["choices"]["columns"]


def test_choices_that_concern_no_column_keep_the_document(tmp_path: Local) -> None:
    """Where readers of the changelog begin anew, and where the copy was first published, are not forgotten."""
    choices = (Choices(columns=ColumnChoice(exclude=names)) for names in (("a", "b"), ("b", "a"), ("nobody",)))
    one, *others = (replace(SCHEMA, choices=chosen) for chosen in choices)
    keep_definition(tmp_path, one)
    keep_restart(tmp_path, one, 0, Place(1, 1, 7))
    for other in others:
        kept = keep_definition(tmp_path, other)
        assert (kept.schema.choices, kept.restarted) == (other.choices, Place(1, 1, 7))
