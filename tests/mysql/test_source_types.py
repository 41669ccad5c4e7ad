"""The text of a type, and the parts that the rest of the package reads."""

import pytest

from lakeingest.core.tables.schema import SourceType
from lakeingest.mysql.source_types import source_type


@pytest.mark.parametrize(
    ("text", "name", "size", "unsigned"),
    [
        ("int", "int", 0, False),
        ("int unsigned", "int", 0, True),
        ("int(10) unsigned zerofill", "int", 10, True),
        ("INT(10) UNSIGNED", "int", 10, True),
        ("tinyint(1)", "tinyint", 1, False),
        ("year", "year", 0, False),
        ("year(4)", "year", 4, False),
        ("decimal(10,2) unsigned", "decimal", 10, True),
        ("double(60,20)", "double", 60, False),
        ("bit(9)", "bit", 9, False),
        ("varchar(255)", "varchar", 255, False),
        ("binary(0)", "binary", 0, False),
        ("datetime(6)", "datetime", 6, False),
        ("vector(3)", "vector", 3, False),
        ("point", "point", 0, False),
        ("longtext", "longtext", 0, False),
        ("inet6", "inet6", 0, False),
        ("uuid", "uuid", 0, False),
        ("blob /*M!100301 COMPRESSED*/", "blob", 0, False),
        ("varchar(9) /*M!100301 COMPRESSED*/", "varchar", 9, False),
        ("datetime /* mariadb-5.3 */", "datetime", 0, False),
        ("time(6) /* mariadb-5.3 */", "time", 6, False),
        ("", "", 0, False),
    ],
)
def test_a_type_has_a_name_a_size_and_a_sign(text: str, name: str, size: int, unsigned: bool) -> None:  # noqa: FBT001
    """A comment of MariaDB changes none of them. The text stays as the server wrote it."""
    assert source_type(text) == SourceType(text, name, unsigned, size)
    assert str(source_type(text)) == text


@pytest.mark.parametrize(
    ("text", "name", "members"),
    [
        ("enum('a','b')", "enum", ("a", "b")),
        ("set('x','y','z')", "set", ("x", "y", "z")),
        ("ENUM('A')", "enum", ("A",)),
        ("enum('')", "enum", ("",)),
        ("enum('it''s','''','''''')", "enum", ("it's", "'", "''")),
        ("enum('a,b',',')", "enum", ("a,b", ",")),
        ("enum('a)','(b','(9)')", "enum", ("a)", "(b", "(9)")),
        (r"enum('a\\b','x\ny','\r','\0','\\n')", "enum", ("a\\b", "x\ny", "\r", "\0", "\\n")),
        ("set('unsigned','zerofill unsigned')", "set", ("unsigned", "zerofill unsigned")),
        ("enum('ü','中')", "enum", ("ü", "中")),
    ],
)
def test_an_enum_or_set_has_its_members_unescaped(text: str, name: str, members: tuple[str, ...]) -> None:
    """It has neither a size nor a sign, whatever its members are."""
    assert source_type(text) == SourceType(text, name, members=members)
