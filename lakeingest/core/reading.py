"""How far a reader of the changelog has read: one string, which sorts as the lines of the changelog do.

`000001.0000000007.00000000000000001234.0000000003-1f0c83aa`: the place of a transaction, the number of a change row in
it, and the name of the stored changelog that the place is in. A row of a copy has `rows` instead of the number, the
last row of a copy `rows.end`, a row that was read again as of the place `rows.reread` and its number.
"""

import re
from dataclasses import dataclass
from typing import Self

from lakeingest.core.position import Place

_TEXT = re.compile(
    r"(?P<place>\d+\.\d+\.\d+)(\.(?P<ordinal>\d+)|\.(?P<rows>rows(\.end|\.reread\.(?P<reread>\d+))?))?"
    r"(-(?P<log>[0-9a-z]+))?"
)


@dataclass(frozen=True, slots=True)
class ReadTo:
    """Everything up to here was read.

    `ordinal` is the number of the last change row that was read of the transaction at `place`, None for all of them.
    `copying`: some rows of a copy as of `place` were read, and not all. `reread` is the number of the last row that was
    read of those that were read again as of `place`: they come after everything of it, and before every later
    transaction. They have no place of their own, because the next one may begin at the next byte. `log` names the
    stored changelog, '' for any.
    """

    place: Place
    ordinal: int | None = None
    copying: bool = False
    log: str = ""
    reread: int | None = None

    @property
    def order(self) -> tuple[Place, int, int]:
        """The order in which a reader reaches positions of one changelog."""
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
        """The inverse of `str`; a place alone is all of its transaction. ValueError for anything else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a position of the changelog: {text!r}")
        ordinal, reread = (None if found[name] is None else int(found[name]) for name in ("ordinal", "reread"))
        place, copying = Place.parse(found["place"]), found["rows"] == "rows"
        return cls(place, ordinal, copying=copying, log=found["log"] or "", reread=reread)
