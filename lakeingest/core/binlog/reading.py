"""How far a reader of the changelog has read: one string, which sorts as the lines of the changelog do.

`000001.0000000007.00000000000000001234.0000000003-1f0c83aa`: the place of a transaction, the number of a change row in
the transaction, and the name of the stored changelog that has the place. Instead of the number, a row of a copy has
`rows`, the last row of a copy has `rows.end`, and a reread row has `rows.reread.` and its number.
"""

import re
from dataclasses import dataclass
from typing import Self

from lakeingest.core.binlog.position import Place

_TEXT = re.compile(
    r"(?P<place>\d+\.\d+\.\d+)(\.(?P<ordinal>\d+)|\.(?P<rows>rows(\.end|\.reread\.(?P<reread>\d+))?))?"
    r"(-(?P<log>[0-9a-z]+))?"
)


@dataclass(frozen=True, slots=True)
class ReadTo:
    """How far a reader has read the changelog.

    `ordinal`: the number of the last change row that was read of the transaction at `place`; None: all were read.
    `copying`: some rows of a copy as of `place` were read, but not all.
    `log`: the name of the stored changelog; '' for any.
    `reread`: the number of the last reread row as of `place` that was read; None: none was read.

    Reread rows come after all other rows of `place`, and before every later transaction. They have no place of their
    own, because the next transaction may begin at the next byte.
    """

    place: Place
    ordinal: int | None = None
    copying: bool = False
    log: str = ""
    reread: int | None = None

    @property
    def order(self) -> tuple[Place, int, int]:
        """A sort key in the order of reading: for each place its change rows, then rows of a copy, then reread rows.

        It does not tell whether some or all rows of a copy were read.
        """
        if self.reread is not None:
            return self.place, 2, self.reread
        return (self.place, 1, 0) if self.ordinal is None else (self.place, 0, self.ordinal)

    def __str__(self) -> str:
        log = f"-{self.log}" if self.log else ""
        if self.ordinal is not None:
            return f"{self.place}.{self.ordinal:010d}{log}"
        if self.reread is not None:
            return f"{self.place}.rows.reread.{self.reread:010d}{log}"
        return f"{self.place}.rows{'' if self.copying else '.end'}{log}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. A place alone means all of its transaction. Raises ValueError for another text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a position of the changelog: {text!r}")
        ordinal, reread = (None if match[name] is None else int(match[name]) for name in ("ordinal", "reread"))
        place, copying = Place.parse(match["place"]), match["rows"] == "rows"
        return cls(place, ordinal, copying=copying, log=match["log"] or "", reread=reread)
