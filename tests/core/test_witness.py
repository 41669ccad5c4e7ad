"""What the second decoder reads again: everything of what is new, then samples for a share of the CPU time."""

from collections import Counter
from dataclasses import replace

import pytest

from lakeingest.core.proofs.witness import (
    EVERY_EVENT,
    EVERY_ROW,
    FIRST_EVENTS,
    FIRST_PART,
    FIRST_ROWS,
    GUESSED_RATE,
    LEAST_FIRST_ROWS,
    MOST_TABLES,
    NO_LOOK,
    PART_ROWS,
    SHARE,
    ChunkLook,
    Difference,
    Look,
    Looked,
    Met,
    Stint,
    first_stint,
    of_chunks,
    rows_to_compare,
    traits,
)
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

A, B, C = (TableId("shop", name) for name in "abc")
ID = Column("id", Kind.INT32, SourceType("int", "int"), default=Default.NONE)
NAME = Column("name", Kind.STRING, SourceType("varchar(9)", "varchar", size=9), charset="utf8mb4")
SIZE = Column("size", Kind.STRING, SourceType("enum('s','secret')", "enum", members=("s", "secret")))


def table(*columns: Column, name: TableId = A) -> TableSchema:
    """A table with the key `id` and more columns."""
    return TableSchema(name, (ID, *columns), ("id",))


def seen(rows: int, *schemas: TableSchema, server: str = "8.4.0", met: Met | None = None) -> Met:
    """What is known after so many rows of each table were compared."""
    met = met or Met("1.0")
    looked = Looked(Counter({schema.table: rows for schema in schemas}))
    return met.after(server, {schema.table: schema for schema in schemas}, [looked], 0.0)


def test_rows_of_chunks_count_for_themselves() -> None:
    """Other decoders read them than rows of the binlog."""
    met, schema = seen(FIRST_ROWS, table(NAME)), table(NAME)
    assert met.has_news(of_chunks("8.4.0"), traits(schema))
    both = seen(FIRST_ROWS, schema, server=of_chunks("8.4.0"), met=met)
    assert not both.has_news(of_chunks("8.4.0"), traits(schema))
    assert not both.has_news("8.4.0", traits(schema))


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({}, False),
        ({"name": "other"}, False),  # the name decides nothing
        ({"nullable": False}, False),
        ({"charset": "latin1"}, True),
        ({"source_type": SourceType("varchar(300)", "varchar", size=300)}, True),
        ({"kind": Kind.MOMENT}, True),
        ({"choice": "null dates"}, True),
        ({"default": Value("x")}, True),
        ({"default": Default.COMPUTED}, True),
    ],
)
def test_what_was_not_met_yet_is_new(change: dict[str, object], *, is_new: bool) -> None:
    """A type or a default; what does not decide how rows are decoded is not."""
    met = seen(FIRST_ROWS, table(NAME))
    assert met.has_news("8.4.0", traits(table(replace(NAME, **change)))) is is_new  # type: ignore[arg-type]


def test_another_default_of_a_known_type_is_new() -> None:
    """One value is not the other."""
    met = seen(FIRST_ROWS, table(replace(NAME, default=Value("x"))))
    assert not met.has_news("8.4.0", traits(table(replace(NAME, default=Value("x")))))
    assert met.has_news("8.4.0", traits(table(replace(NAME, default=Value("y")))))


def test_everything_is_new_until_enough_rows_were_compared() -> None:
    """Rows of all tables with the same type count together."""
    one, other = table(NAME), table(NAME, name=B)
    met = seen(FIRST_ROWS - 1, one)
    assert met.has_news("8.4.0", traits(one))
    assert not seen(1, other, met=met).has_news("8.4.0", traits(one))


def test_another_server_version_is_new_and_so_is_an_upgrade() -> None:
    """The server that was known before stays known; an upgrade forgets both."""
    schema = table(NAME)
    met = seen(FIRST_ROWS, schema)
    assert met.has_news("9.7.0", traits(schema))
    both = seen(FIRST_ROWS, schema, server="9.7.0", met=met)
    assert not both.has_news("9.7.0", traits(schema))
    assert not both.has_news("8.4.0", traits(schema))
    assert both.under("1.0") == both
    assert both.under("1.1").has_news("8.4.0", traits(schema))
    assert both.under("1.1").under("1.1").version == "1.1"


def test_no_value_of_a_table_is_kept() -> None:
    """Neither a default nor a member."""
    kept = " ".join(traits(table(replace(NAME, default=Value("secret")), SIZE)))
    assert "secret" not in kept
    assert "enum of 2 members" in kept


@pytest.mark.parametrize(
    ("run_seconds", "seconds", "sampled", "rows"),
    [
        (0.0, 0.0, 0, 0),
        (19.0, 0.0, 0, 0),  # too little for a sample
        (30.0, 0.0, 0, int(0.3 * GUESSED_RATE)),
        (30.0, 0.2, 100, 0),  # it is spent
        (60.0, 0.2, 100, 200),  # as fast as before
        (1e6, 0.2, 100, FIRST_ROWS),
        (60.0, 0.3, 0, int(0.3 * GUESSED_RATE)),
    ],
)
def test_a_sample_has_as_many_rows_as_its_share_allows(
    run_seconds: float, seconds: float, sampled: int, rows: int
) -> None:
    """By the rate of earlier samples."""
    assert Met("1.0", seconds=seconds, run_seconds=run_seconds, sampled=sampled).sample_rows == pytest.approx(
        rows, abs=1
    )


def test_samples_never_take_more_than_their_share() -> None:
    """Whatever the true rate is: only one sample can be beyond it, and later ones wait for that."""
    for rate in (100, 5_000, 100_000):
        met = Met("1.0")
        for _ in range(2_000):
            rows = met.sample_rows
            looked = [Looked(Counter({A: rows}), seconds=rows / rate, is_sample=True)] if rows else []
            met = met.after("8.4.0", {A: table(NAME)}, looked, 1.0)
        assert met.sampled
        assert met.seconds <= SHARE * met.run_seconds * 1.5
        assert rate < GUESSED_RATE or met.seconds <= SHARE * met.run_seconds


def test_what_is_compared_first_does_not_count_as_a_sample() -> None:
    """It is compared whatever it costs."""
    met = Met("1.0").after("8.4.0", {A: table(NAME)}, [Looked(Counter({A: 5}), seconds=9.0)], 1.0)
    assert (met.seconds, met.sampled, met.run_seconds) == (0.0, 0, 1.0)


def test_reasons_are_counted_and_their_number_is_limited() -> None:
    """A damaged binlog cannot fill the state folder."""
    met = Met("1.0")
    for number in range(300):
        met = met.after("8.4.0", {}, [Looked(unread=Counter({f"reason {number}": 2, "type json": 1}))], 0.0)
    assert met.unread["type json"] == 300
    assert met.unread["reason 0"] == 2
    assert len(met.unread) == 201
    assert sum(met.unread.values()) == 900


def test_the_document_is_read_back() -> None:
    """With all its parts."""
    met = replace(seen(7, table(NAME)), unread={"type json": 3}, seconds=1.5, run_seconds=200.0, sampled=9)
    assert Met.from_json(met.to_json()) == met
    with pytest.raises(KeyError):
        Met.from_json({"version": "1.0"})


@pytest.mark.parametrize(
    ("look", "stint"),
    [
        (NO_LOOK, None),
        (Look(frozenset({C}), frozenset({C})), None),  # it has no rows here
        (Look(first=frozenset({A, C}), first_rows=7), Stint(None, frozenset({A}), 7, FIRST_EVENTS)),
        (Look(first=frozenset({A, B}), sample=5), Stint(None, frozenset({A, B}), LEAST_FIRST_ROWS, FIRST_EVENTS)),
        (Look(frozenset({A}), frozenset({B}), sample=5), Stint(None, frozenset({A}), PART_ROWS, EVERY_EVENT)),
        (Look(sample=5, seed=23), Stint(3, frozenset({A, B}), 5, FIRST_EVENTS)),
    ],
)
def test_what_matters_most_is_read(look: Look, stint: Stint | None) -> None:
    """A table about which the decoders have disagreed, then what is new, then a sample."""
    assert first_stint(look, {A: 300, B: 9}, 10) == stint
    assert first_stint(look, {}, 10) is None
    assert look.is_empty is (look is NO_LOOK)


def test_each_of_many_tables_has_its_turn() -> None:
    """A look reads some of them, and the seed decides which."""
    tables = {TableId("shop", f"t{number}") for number in range(120)}
    seen = set[TableId]()
    for seed in range(0, 120, MOST_TABLES):
        stint = first_stint(Look(first=frozenset(tables), seed=seed), dict.fromkeys(tables, 1), 1)
        assert stint is not None
        assert len(stint.tables) == MOST_TABLES
        seen |= stint.tables
    assert seen == tables


@pytest.mark.parametrize(
    ("read", "compared"),
    [
        (1, LEAST_FIRST_ROWS),  # it takes the rows that there are
        (LEAST_FIRST_ROWS * FIRST_PART, LEAST_FIRST_ROWS),
        ((LEAST_FIRST_ROWS + 1) * FIRST_PART, LEAST_FIRST_ROWS + 1),
        (FIRST_ROWS * FIRST_PART, FIRST_ROWS),
        (FIRST_ROWS * FIRST_PART * 2, FIRST_ROWS),
    ],
)
def test_something_new_takes_a_part_of_a_long_read(read: int, compared: int) -> None:
    """At least some rows, and never more than are wanted at all; a segment counts the rows of the chosen tables."""
    assert rows_to_compare(FIRST_ROWS, LEAST_FIRST_ROWS, read) == compared
    assert ChunkLook(FIRST_ROWS, LEAST_FIRST_ROWS).rows_of(read) == compared
    stint = first_stint(Look(first=frozenset({A})), {A: read, B: 10**9}, 1)
    assert stint is not None
    assert stint.rows == compared


@pytest.mark.parametrize("rows", [0, 5, EVERY_ROW])
def test_suspects_and_samples_do_not_depend_on_the_size_of_a_chunk(rows: int) -> None:
    """They take as many rows as they say."""
    assert {ChunkLook(rows).rows_of(read) for read in (0, 1, 10**9)} == {rows}


def test_a_difference_can_be_shown_without_its_values() -> None:
    """In the message and in the document."""
    difference = Difference(A, "binlog.000001:4711", "column name", "x" * 90, None)
    assert "x" * 60 + "…" not in difference.line(masked=True)
    assert "'" + "x" * 59 + "…, and the second one reads None" in difference.line(masked=False)
    assert difference.to_json(masked=False)["fast"] == "'" + "x" * 90 + "'"
    masked = difference.to_json(masked=True)
    assert (masked["fast"], masked["second"]) == ("str of 90", "NoneType")
    assert masked["table"] == "shop.a"
    assert Difference(A, "", "", 1, 2).line(masked=False).endswith(": 1, and the second one reads 2")
