"""`quality` of pipeline.yml: the users' suites of expectations, and how runs compare tables with the source."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, PrivateAttr, WithJsonSchema

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import RESERVED

_SHARE = re.compile(r"(?P<number>\d+(\.\d+)?)%", re.ASCII)
_PERCENT = 100


def _parse_share(value: Any) -> float:
    """The share in a text such as 1%. Raises ValueError for any other value, and for more than 100%."""
    match = _SHARE.fullmatch(str(value))
    if match is None or float(match["number"]) > _PERCENT:
        raise ValueError("a share is a number from 0 to 100 and a percent sign: 1% or 0.5%")
    return float(match["number"]) / _PERCENT


SUITES = Place("quality")  # the folder of the users' suites, if pipeline.yml does not name one

# A share such as 1%, as a number from 0 to 1. A number without a percent sign is refused.
Share = Annotated[
    float,
    BeforeValidator(_parse_share),
    PlainSerializer(lambda share: f"{share * _PERCENT:.10g}%", return_type=str),
    WithJsonSchema({"type": "string"}),
]


class Quarantine(Frozen):
    """How many rows of a table may be in quarantine: at most `max_rows`, and at most the share `max_share`.

    If more rows fail, the table stops. One row may always be in quarantine.
    """

    max_rows: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    max_share: Share = 0.01


class Proofs(Frozen):
    """How runs compare the tables with the source, range by range.

    `every`: the aim for the age of a range's proof. `budget`: the share of the source's time that comparisons may take.
    `on_difference` says what happens to a table that differs.
    """

    every: Duration
    budget: Annotated[Share, Field(gt=0)]
    on_difference: Literal["stop", "report", "repair"] = "stop"


class Quality(Frozen):
    """The users' suites of expectations. `suites` is the folder of the suites; None if there is none.

    `on_failure` says what happens if rows fail, and `quarantine` how many rows may be in quarantine. `sql` says whether
    SQL in suites is allowed: SQL can call any function of the JVM and read any file of the machine. `samples` says
    whether the pages of gates show values of rows that fail; if False, the pages show only the keys of such rows.
    `verify`: how runs compare the tables with the source; None: they do not. `ledger`: the database of the tables in
    the lake into which runs write what gates and comparisons have found; None: they write none. `ledger_keep`: how long
    the results of gates stay there. `unusual`: whether runs warn of tables into which more or less is written than
    before, or another share of NULLs.
    """

    suites: Place | None = None
    on_failure: Literal["stop", "quarantine"] = "stop"
    quarantine: Quarantine = Quarantine()
    sql: Literal["refuse", "allow"] = "refuse"
    samples: bool = True
    verify: Proofs | None = None
    ledger: Annotated[str, Field(pattern=f"^{RESERVED}[a-z0-9_]*$")] | None = None
    ledger_keep: Duration = timedelta(days=400)  # a year can be compared with the one before
    unusual: Literal["ignore", "warn"] = "ignore"

    _default: Path = PrivateAttr(SUITES.path)

    @property
    def folder(self) -> Path | None:
        """The path of the folder of the suites; None if there is none."""
        return None if self.suites is None else self.suites.path

    @property
    def default_folder(self) -> Path:
        """The folder in which suites are if pipeline.yml does not name a folder. It may be missing."""
        return self._default

    def below(self, folder: Path) -> Self:
        """The same settings with absolute paths: relative paths are taken from `folder`."""
        default = SUITES.below(folder)
        suites = (self.suites or SUITES).below(folder)
        # the default folder counts only if it exists
        has_suites = self.suites is not None or default.path.is_dir()
        quality = self.model_copy(update={"suites": suites if has_suites else None})
        quality._default = default.path  # noqa: SLF001 - of this class
        return quality
