"""The parts of a line that all formats of the changelog share: the position of each row, and values as JSON texts."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.pipeline.changelog.reading import Changed, Part
from lakeingest.spool.followed import Altered

DDL, TRUNCATE = "DDL", "TRUNCATE"  # the value of `op` in a line of DDL, where other lines have the row's kind

OPS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}

Encode = Callable[[Any], str]  # writes a value as JSON; the value is not None


def positions(part: Part, name: str) -> list[str]:
    """The position after each row of the part; for DDL, the one position after the DDL.

    A reader that names one of these positions with `--since` continues after its row or DDL.
    `name` is the name of the table's changelog.
    """
    if isinstance(part, Altered):
        return [str(replace(part.followed.read_to, log=name))]
    if isinstance(part, Changed):
        columns = (part.rows[column].to_pylist() for column in (*change.ORDER, change.COMMITTED_AT))
        texts = []
        for epoch, file, pos, ordinal, committed_at in zip(*columns, strict=True):
            place = Place(epoch, file, pos)
            is_reread = committed_at is None  # only a row that was read again has no commit time
            read_to = ReadTo(place, reread=ordinal, log=name) if is_reread else ReadTo(place, ordinal, log=name)
            texts.append(str(read_to))
        return texts
    # only the last row of a copy has another position: after it, the reader has the whole copy
    within_copy = str(ReadTo(part.place, copying=True, log=name))
    after_part = str(ReadTo(part.place, log=name)) if part.last else within_copy
    return [within_copy] * (part.rows.num_rows - 1) + [after_part]


def is_truncate(part: Altered) -> bool:
    """Whether the DDL removed all rows and changed nothing else, as TRUNCATE does."""
    return part.alteration.empties


def statement(part: Altered) -> str:
    """The text of the DDL. If an earlier version of lakeingest stored the DDL, only the first words are known."""
    return part.alteration.text or part.alteration.statement


def values_of_added(part: Altered) -> dict[str, Any]:
    """The value of existing rows in each column that the DDL added, by the column's name."""
    followed = part.followed
    added = (name for name, old_name in zip(followed.after.names, followed.origins, strict=True) if old_name is None)
    return {name: followed.fills[name].as_py() if name in followed.fills else None for name in added}


def json_text(value: str) -> str:
    """A JSON string; characters outside ASCII are not escaped."""
    return encode_basestring(value)


def json_binary(value: bytes) -> str:
    """A JSON string in base64."""
    return f'"{base64.b64encode(value).decode()}"'


def json_boolean(value: bool) -> str:  # noqa: FBT001 - it is the value
    """`true` or `false`."""
    return "true" if value else "false"


def json_number(value: Decimal) -> str:
    """A JSON number with all digits, without an exponent."""
    return f"{value:f}"


def json_float32(value: float) -> str:
    """The shortest text that reads back as the same 32-bit float."""
    return str(np.float32(value))


def json_vector(values: Sequence[float]) -> str:
    """A JSON array of 32-bit floats."""
    return f"[{','.join(map(json_float32, values))}]"


def json_date(value: date) -> str:
    """A JSON string in the form of ISO 8601."""
    return f'"{value.isoformat()}"'


def time_encoder(digits: int, zone: str = "") -> Encode:
    """A function that writes times in ISO 8601, with `digits` decimals of the second, then the text `zone`."""

    def encode(value: datetime) -> str:
        fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""  # the point, and so many digits
        return f'"{value.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}{zone}"'

    return encode
