"""`quality` of pipeline.yml: the users' suites of expectations, and how runs compare tables with the source."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.config.place import Place

_PERCENT = re.compile(r"(?P<number>\d+(\.\d+)?) ?%", re.ASCII)


def _parse_percent(value: Any) -> float:
    """The share in a text such as `2%`. Raises ValueError for any other value."""
    match = _PERCENT.fullmatch(str(value))
    if match is None or not 0 < float(match["number"]) <= 100:  # noqa: PLR2004 - percent
        raise ValueError("a share is a number above 0 and at most 100, and a percent sign: 2%")
    return float(match["number"]) / 100


# A share such as 2%, as a number above 0 and at most 1
Percent = Annotated[
    float,
    BeforeValidator(_parse_percent),
    PlainSerializer(lambda share: f"{100 * share:g}%", return_type=str),
    WithJsonSchema({"type": "string", "format": "percent"}),
]


class Proofs(Frozen):
    """How runs compare the tables with the source, range by range.

    `every`: the aim for the age of a range's proof. `budget`: the share of the source's time that comparisons may take.
    `on_difference` says what happens to a table that differs.
    """

    every: Duration
    budget: Percent
    on_difference: Literal["stop", "report", "repair"] = "stop"


class Quality(Frozen):
    """The users' suites of expectations. `suites` is the folder of the suites; None if there is none.

    `on_failure` says what happens if rows fail. `sql` says whether SQL in suites is allowed: SQL can call any function
    of the JVM and read any file of the machine. `samples` says whether the pages of gates show values of rows that
    fail; if False, the pages show only the keys of such rows.
    `verify`: how runs compare the tables with the source; None: they do not.
    """

    suites: Place | None = None
    on_failure: Literal["stop", "quarantine"] = "stop"
    sql: Literal["refuse", "allow"] = "refuse"
    samples: bool = True
    verify: Proofs | None = None

    @property
    def folder(self) -> Path | None:
        """The path of the folder of the suites; None if there is none."""
        return None if self.suites is None else self.suites.path
