"""The checksums of `core.checksum` for a copy. Spark computes them from the texts to which MySQL casts the values."""

import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from lakeingest.core.checksum import UINT64, Checksum
from lakeingest.core.keys import Key, quote
from lakeingest.core.schema import Column as TableColumn
from lakeingest.core.schema import Kind, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBER = "_lakeingest_number"  # an additional column of rows: the number of the row's range or bucket

# The greatest length of the text of a DOUBLE without an exponent, on the source: first of a column's value, second of
# an expression's value. A longer text gets an exponent
Widths = tuple[int, int]

_NO_DOUBLES: Widths = (0, 0)  # for the columns of a key, none of which is a DOUBLE
_FIXED_DIGITS = 15  # longer integers, and fractions with so many zeros first, get an exponent (my_gcvt)


def checksums(rows: "DataFrame", schema: TableSchema, widths: Widths) -> dict[int, Checksum]:
    """The checksum of the rows of each range or bucket, by its NUMBER."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    halves = rows.select(NUMBER, *_halves(schema, widths))
    counted = halves.groupBy(NUMBER).agg(F.count(F.lit(1)), F.bit_xor("left"), F.bit_xor("right"))
    # `% UINT64` makes unsigned integers of Spark's signed ones
    return {number: Checksum(count, left % UINT64, right % UINT64) for number, count, left, right in counted.collect()}


def in_buckets(rows: "DataFrame", schema: TableSchema, count: int) -> "DataFrame":
    """The rows with their key's bucket as NUMBER. `core.checksum.bucket` computes the same number."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn(NUMBER, (F.crc32(F.concat(*_parts(schema.key_columns, _NO_DOUBLES))) % count).cast("int"))


def row_checksums(rows: "DataFrame", schema: TableSchema, limit: int, widths: Widths) -> list[tuple[Key, Checksum]]:
    """The key and the checksum of each of the first `limit` rows in the order of their keys.

    Keys have the form of `mysql.checksum`: numbers if the key is `ordered`, else texts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    key_values = [
        F.col(quote(column.name)) if schema.ordered else _text(column, _NO_DOUBLES) for column in schema.key_columns
    ]
    keys = [value.alias(f"key{i}") for i, value in enumerate(key_values)]
    names = [f"key{i}" for i in range(len(keys))]
    first_rows = rows.select(*keys, *_halves(schema, widths)).orderBy(*names).limit(limit).collect()
    parse = int if schema.ordered else str
    return [
        # a row has the columns of the key, then the two halves
        (tuple(map(parse, row[:-2])), Checksum(1, row["left"] % UINT64, row["right"] % UINT64))
        for row in first_rows
    ]


def double_text(value: float | None, most: int) -> str | None:
    """The text of a DOUBLE, as the source's `CAST(… AS CHAR)` writes it: the shortest digits that identify the value.

    The text has an exponent if it would otherwise be longer than `most` characters, including a minus sign. It also has
    an exponent if it would be an integer of more than `_FIXED_DIGITS` digits, or if so many zeros followed the point.
    """
    if value is None:
        return None
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    # `sign` is 1 for a negative value, else 0
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    length = len(digits)
    point = length + int(exponent)  # the number of digits before the decimal point; negative: zeros follow the point
    # the width is the length of the text without an exponent and without a minus sign
    if point <= 0:
        width = length - point + 2  # "0." and zeros before the digits
    elif point < length:
        width = length + 1
    else:
        width = point
    is_tiny = point <= -_FIXED_DIGITS
    is_huge = point >= length and point > _FIXED_DIGITS  # an integer of many digits
    is_too_long = sign + width > most
    if is_tiny or is_huge or is_too_long:
        text = digits[0] + ("." + digits[1:] if length > 1 else "") + f"e{point - 1}"
    elif point <= 0:
        text = "0." + "0" * -point + digits
    else:
        whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
        text = whole + ("." + fraction if fraction else "")
    return "-" * sign + text


def unsigned_double_text(value: float | None, most: int) -> str | None:
    """The text of a DOUBLE as the source writes the value of an expression: a minus sign does not count for `most`."""
    if value is None or math.copysign(1, value) > 0:  # no minus sign
        return double_text(value, most)
    return f"-{double_text(-value, most)}"


def vector_text(floats: Sequence[float] | None) -> str | None:
    """A VECTOR as MySQL's `HEX` writes it: the bytes of each FLOAT as hexadecimal digits."""
    return None if floats is None else struct.pack(f"<{len(floats)}f", *floats).hex().upper()


def _halves(schema: TableSchema, widths: Widths) -> Sequence["Column"]:
    """Two columns with the first 128 bits of each row's SHA-256: `left` and `right`, signed integers of 64 bits."""
    from pyspark.sql import functions as F  # noqa: N812

    hashed = F.sha2(F.concat(*_parts(schema.columns, widths)), 256)
    # to base -10: `conv` returns signed numbers for a negative base
    return [
        F.conv(hashed.substr(first, 16), 16, -10).cast("bigint").alias(name)
        for first, name in ((1, "left"), (17, "right"))
    ]


def _parts(columns: Sequence[TableColumn], widths: Widths) -> Sequence["Column"]:
    """For each column, the length in bytes and the text of the value; or `N` for NULL.

    The lengths make sure that different rows have different concatenated texts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    texts = [_text(column, widths) for column in columns]
    return [F.coalesce(F.concat(F.octet_length(text).cast("string"), F.lit(":"), text), F.lit("N")) for text in texts]


def _text(column: TableColumn, widths: Widths) -> "Column":
    """The texts to which MySQL casts the values of a column."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(quote(column.name))
    # `useArrow=False`: otherwise Spark 4.1 derives the kind of UDF from the annotations, and warns about ours
    match column.kind:
        case Kind.DECIMAL:  # a cast would write small numbers with an exponent
            pattern = "0." + "0" * column.scale if column.scale else "0"
            return F.expr(f"format_number({quote(column.name)}, '{pattern}')")
        case Kind.DATETIME | Kind.TIMESTAMP:
            return F.date_format(value.cast("timestamp"), "yyyy-MM-dd HH:mm:ss.SSSSSS")
        case Kind.BINARY:
            return F.hex(value)
        case Kind.BOOLEAN:
            return value.cast("int").cast("string")
        case Kind.VECTOR:
            return F.udf(vector_text, "string", useArrow=False)(value)
        case Kind.DOUBLE if not column.source_type.size:  # DOUBLE without (M,D): the source casts the value
            return F.udf(partial(double_text, most=widths[0]), "string", useArrow=False)(value)
        case Kind.FLOAT | Kind.DOUBLE:  # FLOAT or DOUBLE(M,D): the source casts an expression of the value
            text = partial(unsigned_double_text, most=widths[1])
            return F.udf(text, "string", useArrow=False)(value.cast("double"))
        case _:
            return value.cast("string")
