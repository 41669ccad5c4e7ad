"""Shared by all formats of the changelog: the position of each row, and texts of values that JSON has no type for."""

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

DDL, TRUNCATE = "DDL", "TRUNCATE"  # in the place of a row's kind

OPS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}

Encode = Callable[[Any], str]  # a value that is not None as JSON


def positions(part: Part, name: str) -> list[str]:
    """The position after each row, or after DDL: `--since` takes it to continue there."""
    if isinstance(part, Altered):
        return [str(replace(part.followed.read_to, log=name))]
    if isinstance(part, Changed):
        columns = (part.rows[column].to_pylist() for column in (*change.ORDER, change.COMMITTED_AT))
        return [
            str(
                ReadTo(Place(*place), reread=number, log=name)
                if committed_at is None
                else ReadTo(Place(*place), number, log=name)
            )
            for *place, number, committed_at in zip(*columns, strict=True)
        ]
    within = str(ReadTo(part.place, copying=True, log=name))
    last = str(ReadTo(part.place, log=name)) if part.last else within
    return [within] * (part.rows.num_rows - 1) + [last]


def is_truncate(part: Altered) -> bool:
    """Whether the DDL removed all rows, and changed nothing else."""
    return part.alteration.empties


def statement(part: Altered) -> str:
    """The text of the DDL; only its first words if an earlier version of lakeingest stored it."""
    return part.alteration.text or part.alteration.statement


def fills(part: Altered) -> dict[str, Any]:
    """By the name of each new column, the value that older rows have in it."""
    followed = part.followed
    new = (name for name, old_name in zip(followed.after.names, followed.origins, strict=True) if old_name is None)
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
    """The shortest text of a 32-bit float that reads back as the same value."""
    return str(np.float32(value))


def vector(values: Sequence[float]) -> str:
    """An array of 32-bit floats."""
    return f"[{','.join(map(single, values))}]"


def day(value: date) -> str:
    """ISO 8601."""
    return f'"{value.isoformat()}"'


def moment(digits: int, zone: str = "") -> Encode:
    """A function that writes times in ISO 8601, with `digits` digits of a second, followed by `zone`."""

    def encode(value: datetime) -> str:
        fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""
        return f'"{value.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}{zone}"'

    return encode
