from typing import Any

import pyarrow as pa
import pytest

from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.text_rows import from_text
from lakeingest.rows import VECTOR, arrow_type

POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")

# Column -> what the driver gives for its text, and the values in Arrow
TEXTS: dict[Column, tuple[list[Any], list[Any]]] = {
    Column("c", Kind.TIME, source_type("time(6)")): (["-838:59:59.000000", None], ["-838:59:59.000000", None]),
    Column("c", Kind.NUMERAL, source_type("decimal(65,30)"), precision=65, scale=30): (
        ["9" * 65, None],
        ["9" * 65, None],
    ),
    Column("c", Kind.JSON, source_type("json")): (['{"a": null}', "null", None], ['{"a": null}', "null", None]),
    Column("c", Kind.BOOLEAN, source_type("bit(1)")): ([b"\1", b"\0", None], [True, False, None]),
    Column("c", Kind.BINARY, source_type("bit(9)")): ([b"\1\xff", None], [b"\1\xff", None]),
    Column("c", Kind.BINARY, source_type("point")): ([b"\xe6\x10\0\0" + POINT, None], [POINT, None]),
    Column("c", Kind.INT32, source_type("year")): (["0000", "2155", None], [0, 2155, None]),
    Column("c", Kind.STRING, source_type("set('a','b')")): (["", "a,b", None], ["", "a,b", None]),
}


@pytest.mark.parametrize("column", TEXTS, ids=lambda column: column.source_type)
def test_the_text_of_a_type_is_read_exactly(column: Column) -> None:
    """As MySQL writes it; a geometry loses its SRID."""
    given, expected = TEXTS[column]
    found = from_text(column, given)
    assert found.type == arrow_type(column)
    assert found.to_pylist() == expected


def test_the_text_of_a_vector_is_refused() -> None:
    """A VECTOR has no exact text."""
    column = Column("c", Kind.VECTOR, source_type("vector(3)"))
    assert arrow_type(column) == VECTOR == pa.list_(pa.field("element", pa.float32(), nullable=False))
    with pytest.raises(UnsupportedValue, match="LAKEINGEST_WIRE=reference cannot"):
        from_text(column, [b"\0\0\0\0"])
