"""Whether an expression may have another value in another session is known from its text, or it may."""

import pytest

from lakeingest.core.tables.generation import may_change_later

TYPES = {"a": "int", "s": "varchar", "ts": "timestamp", "c": "char", "o`dd": "json"}


@pytest.mark.parametrize(
    "expression",
    [
        "(`a` + 1)",
        "concat(`s`,'x')",
        "concat(`S`,_utf8mb4\\'it is\\')",
        "ifnull(`s`,'') like '%''%'",
        "json_unquote(json_extract(`o``dd`,_utf8mb4\\'$.name\\'))",
        "cast(`s` as char charset utf8mb4)",
        "(`s` collate utf8mb4_bin)",
        "if(`a` > 0x1f,1,2) div 3".replace("0x1f", "31"),
    ],
)
def test_an_expression_of_its_arguments_alone_is_free(expression: str) -> None:
    """Of both servers, with the literals that they print."""
    assert not may_change_later(expression, TYPES, "int")


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "hour(`ts`)",
        "`ts`",
        "concat(`c`,'x')",
        "`unknown` + 1",
        "(`a` / 3)",
        "dayname(`s`)",
        "from_unixtime(`a`)",
        "@@time_zone",
        "concat(`a`,_utf8mb4\\'\\\\\\'now()\\')",
        'concat(`a`,"x")',
        "concat(`a`,'unfinished)",
    ],
)
def test_any_other_may_be_bound_to_the_session(expression: str) -> None:
    """Time zones, locales, modes; what is not known."""
    assert may_change_later(expression, TYPES, "int")


@pytest.mark.parametrize("expression", ["`a`", "(`a` + 1)", "coalesce(`a`,0)", "(`a` is null)", "`s`"])
def test_the_text_of_a_number_may_be_an_older_one(expression: str) -> None:
    """DDL in place takes zeros away, and the next copy of the table computes the text without them."""
    assert not may_change_later(expression, TYPES, "int")
    assert may_change_later(expression, TYPES, "varchar") is (expression != "`s`")
    for shown in (f"length({expression})", f"concat({expression},'x')", f"if({expression} = '7',1,0)"):
        assert may_change_later(shown, TYPES, "int") is (expression != "`s`")
