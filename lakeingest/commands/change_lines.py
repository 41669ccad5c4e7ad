"""What the formats of the changelog share: the place of each row of a part, and values that JSON has no type for."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from lakeingest.commands.changelog import Changed, Part
from lakeingest.core import change
from lakeingest.core.change import RowKind
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.spool.followed import Altered

DDL, TRUNCATE = "DDL", "TRUNCATE"  # what DDL is called where rows have their kind

OPS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}

Encode = Callable[[Any], str]  # a value that is not None as JSON


def positions(part: Part, name: str) -> list[str]:
    """What `--since` takes to go on after each row, or after DDL."""
    if isinstance(part, Altered):
        return [str(replace(part.followed.read_to, log=name))]
    if isinstance(part, Changed):
        columns = (part.rows[one].to_pylist() for one in (*change.ORDER, change.COMMITTED_AT))
        return [
            str(
                ReadTo(Place(*parts), reread=number, log=name)
                if at is None
                else ReadTo(Place(*parts), number, log=name)
            )
            for *parts, number, at in zip(*columns, strict=True)
        ]
    within = str(ReadTo(part.place, copying=True, log=name))
    last = str(ReadTo(part.place, log=name)) if part.last else within
    return [within] * (part.rows.num_rows - 1) + [last]


def is_truncate(part: Altered) -> bool:
    """Whether it removed all rows, and changed nothing else."""
    return part.alteration.empties


def statement(part: Altered) -> str:
    """The DDL; of a spool of an earlier version how it begins."""
    return part.alteration.text or part.alteration.statement


def fills(part: Altered) -> dict[str, Any]:
    """By the name of each new column, the value that older rows have in it."""
    followed = part.followed
    new = (name for name, was in zip(followed.after.names, followed.origins, strict=True) if was is None)
    return {name: followed.fills[name].as_py() if name in followed.fills else None for name in new}


def text(value: str) -> str:
    """A string, in UTF-8."""
    return encode_basestring(value)


def binary(value: bytes) -> str:
    """Base64."""
    return f'"{base64.b64encode(value).decode()}"'


def boolean(value: bool) -> str:  # noqa: FBT001 - it is the value
    """A truth value."""
    return "true" if value else "false"


def number(value: Decimal) -> str:
    """All digits, without an exponent."""
    return f"{value:f}"


def single(value: float) -> str:
    """The shortest text that is this value of 32 bits."""
    return str(np.float32(value))


def vector(values: Sequence[float]) -> str:
    """An array of such numbers."""
    return f"[{','.join(map(single, values))}]"


def day(value: date) -> str:
    """ISO 8601."""
    return f'"{value.isoformat()}"'


def moment(digits: int, zone: str = "") -> Encode:
    """ISO 8601 with so many digits of a second; `zone` is what comes behind."""

    def encode(value: datetime) -> str:
        fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""
        return f'"{value.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}{zone}"'

    return encode
