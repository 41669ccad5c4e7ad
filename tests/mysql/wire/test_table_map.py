import pytest

from lakeingest.core.tables import kinds
from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.wire import binding
from lakeingest.mysql.wire.charsets import UnknownCharset
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Damaged, Event, Type
from lakeingest.mysql.wire.table_map import read_table_map
from tests.mysql.wire.stream import event


def packed(number: int) -> bytes:
    """A number in MySQL's form of 1 to 9 bytes."""
    if number < 251:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + number.to_bytes(2, "little")
    return b"\xfd" + number.to_bytes(3, "little")


def strings(texts: list[str]) -> bytes:
    """Strings with their lengths."""
    return b"".join(packed(len(text.encode())) + text.encode() for text in texts)


def table_map(columns: list[tuple[int, bytes]], names: list[str] | None = None, /, **fields: bytes) -> Event:
    """The event of a table with columns of these types and metadata; fields are `f1=…` and so on."""
    named = [f"c{i}" for i in range(len(columns))] if names is None else names
    metadata = b"".join(more for _, more in columns)
    types = packed(len(columns)) + bytes(type_ for type_, _ in columns)
    body = bytes(6) + b"\1\0" + b"\4shop\0" + b"\1t\0" + types + packed(len(metadata)) + metadata
    body += bytes((len(columns) + 7) // 8)
    for field, value in (({"f4": strings(named)} if named else {}) | fields).items():
        body += bytes([int(field[1:])]) + packed(len(value)) + value
    return Event.parse(event(Type.TABLE_MAP, body, 500), checksums=True)


INT, YEAR, TINY, VARCHAR, BLOB, JSON, VECTOR = (
    (3, b""),
    (13, b""),
    (1, b""),
    (15, b"\x14\0"),
    (252, b"\2"),
    (245, b"\4"),
    (242, b"\4"),
)


def test_long_names_are_read_completely() -> None:
    """Names and enum members of more than 127, 250 and 65535 bytes."""
    names = ["ü" * 64, "b"]
    members = ["x" * 200, "y" * 300, "z" * 70_000]
    enums = packed(len(members)) + strings(members)
    found = read_table_map(table_map([INT, (254, b"\xf7\1")], names, f1=b"\0", f6=enums, f10=b"\x2d"))
    assert (found.table, found.names) == (TableId("shop", "t"), tuple(names))
    assert [column.members for column in found.columns] == [(), tuple(members)]


def test_a_year_has_a_bit_among_the_signs_of_numbers() -> None:
    """The server counts it as a number, so the next numbers have the next bits."""
    found = read_table_map(table_map([YEAR, TINY, VARCHAR, TINY, INT], f1=bytes([0b11010000]), f2=b"\x2d"))
    assert [column.unsigned for column in found.columns] == [True, True, False, False, True]


def test_a_vector_has_a_charset_among_the_texts() -> None:
    """The server counts it as text, unlike JSON, so the next texts have the next charsets."""
    each = b"\x08\x3f\x3f\x0d"  # latin1, binary, binary, sjis
    found = read_table_map(table_map([VARCHAR, VECTOR, JSON, BLOB, VARCHAR], f3=each))
    assert [column.charset for column in found.columns] == ["latin1", "binary", "utf8mb4", "binary", "sjis"]
    other = read_table_map(table_map([VARCHAR, VECTOR, JSON, BLOB, VARCHAR], f2=b"\x08\1\x3f\2\x3f\3\x0d"))
    assert other.columns == found.columns


def test_enums_and_sets_have_a_separate_list_of_charsets() -> None:
    """Their members are in these charsets."""
    fields = {"f5": packed(1) + b"\2\x95\x5c", "f6": packed(2) + b"\1\xe9\1b", "f11": b"\x0d\x08"}
    found = read_table_map(table_map([(254, b"\xf8\1"), (254, b"\xf7\1")], **fields))
    assert [column.members for column in found.columns] == [("表",), ("é", "b")]


def test_without_full_metadata_names_are_empty() -> None:
    """And signs, charsets and members are unknown."""
    found = read_table_map(table_map([INT, VARCHAR], []))
    assert (found.names, found.columns) == ((), (Sent(FieldType.LONG), Sent(FieldType.VARCHAR, size=1)))


@pytest.mark.parametrize(
    ("column", "sent"),
    [
        ((15, b"\xff\0"), Sent(FieldType.VARCHAR, size=1)),
        ((15, b"\0\1"), Sent(FieldType.VARCHAR, size=2)),
        ((254, b"\xfe\xff"), Sent(FieldType.STRING, size=1)),
        ((254, b"\xee\xfc"), Sent(FieldType.STRING, size=2)),  # 508 bytes
        ((254, b"\xf7\2"), Sent(FieldType.ENUM, size=2)),
        ((254, b"\xf8\x08"), Sent(FieldType.SET, size=8)),
        ((252, b"\4"), Sent(FieldType.BLOB, size=4)),
        ((16, b"\0\1"), Sent(FieldType.BIT, size=1)),
        ((16, b"\1\1"), Sent(FieldType.BIT, size=2)),
        ((246, b"\x41\x1e"), Sent(FieldType.NEWDECIMAL, precision=65, scale=30)),
        ((18, b"\6"), Sent(FieldType.DATETIME2, digits=6)),
        ((4, b"\4"), Sent(FieldType.FLOAT)),
        ((10, b""), Sent(FieldType.DATE)),
    ],
)
def test_the_encoding_follows_from_the_type_and_its_metadata(column: tuple[int, bytes], sent: Sent) -> None:
    """For every type."""
    assert read_table_map(table_map([column], [])).columns == (sent,)


@pytest.mark.parametrize(
    "column",
    [
        (252, b"\0"),
        (252, b"\5"),
        (252, b"\x09"),
        (245, b"\xff"),
        (254, b"\xf7\0"),
        (254, b"\xf7\3"),
        (254, b"\xf8\5"),
        (247, b""),
        (248, b""),
        (16, b"\0\0"),
        (16, b"\1\x08"),
        (18, b"\7"),
        (17, b"\xff"),
        (19, b"\x80"),
        (246, b"\0\0"),
        (246, b"\x42\0"),
        (246, b"\3\4"),
        (99, b""),
        (7, b""),
        (11, b""),
        (12, b""),
        (15, b"\1"),
    ],
)
def test_an_impossible_type_is_damage(column: tuple[int, bytes]) -> None:
    """Impossible sizes, obsolete types, and metadata that end too early."""
    with pytest.raises(Damaged):
        read_table_map(table_map([column], []))


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ([INT], {}),
        ([INT] * 9, {"f1": b"\0"}),
        ([VARCHAR], {}),
        ([VARCHAR], {"f2": b"\x2d\1\x2d"}),
        ([VARCHAR, VARCHAR], {"f3": b"\x2d"}),
        ([(254, b"\xf7\1")], {"f10": b"\x2d"}),
        ([(254, b"\xf7\1")], {"f10": b"\x2d", "f6": b"\1\2a"}),
        ([(254, b"\xf7\1")], {"f10": b"\x2d", "f6": b"\1\1\xff"}),
    ],
)
def test_incomplete_metadata_are_damage(columns: list[tuple[int, bytes]], fields: dict[str, bytes]) -> None:
    """Missing signs, charsets and members are not guessed."""
    with pytest.raises(Damaged):
        read_table_map(table_map(columns, **fields))


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"]])
def test_another_number_of_names_than_columns_is_damage(names: list[str]) -> None:
    """Fewer or more."""
    with pytest.raises(Damaged, match="names for 2 columns"):
        read_table_map(table_map([YEAR, YEAR], names, f1=b"\0"))


def test_a_column_name_that_is_not_utf8_is_damage() -> None:
    """Names of columns are UTF-8."""
    with pytest.raises(Damaged, match="that is not UTF-8"):
        read_table_map(table_map([(10, b"")], [], f4=b"\1\xff"))


def test_an_unknown_collation_is_refused_by_its_number() -> None:
    """It is not damage: newer servers may have more collations."""
    with pytest.raises(UnknownCharset, match="collation 2047"):
        read_table_map(table_map([VARCHAR], f2=b"\xfc\xff\x07"))


def test_every_type_that_is_copied_is_known_to_events_without_names() -> None:
    """By default MySQL names no columns: a type that binding.py lacks would stop its tables at their first change."""
    of_kinds, of_events = kinds._KINDS, binding._TYPES  # noqa: SLF001 - the two lists of types
    assert of_kinds.keys() == of_events.keys(), "add the type to core/tables/kinds.py and to mysql/wire/binding.py"
