"""Notices: which changes of tables and runs somebody is told about, each once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from lakeingest.core.figures.freshness import Measure, age

Occasion = Literal["failed", "stale", "recovered"]
RUN = ""  # stands for the whole run where a table is named


@dataclass(frozen=True, slots=True)
class Known:
    """What somebody was told last about a table: the `error` that stopped it ('': none), and whether it is `stale`."""

    error: str = ""
    stale: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {"error": self.error, "stale": self.stale}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises KeyError or TypeError for anything else."""
        return cls(str(doc["error"]), bool(doc["stale"]))


HEALTHY = Known()


@dataclass(frozen=True, slots=True)
class Notice:
    """A change to tell: of a `table`, or of the run (RUN).

    `error`: the name of the error; '' if the table is only stale. With `recovered`, it is the error that is over.
    `position`: that of the rows which readers see. `age`: how old these rows are, in seconds. Both are None if unknown.
    """

    occasion: Occasion
    table: str
    error: str
    position: str | None = None
    age: float | None = None


def notices_of_tables(
    known: Mapping[str, Known], measures: Iterable[Measure], now: float
) -> tuple[list[Notice], dict[str, Known]]:
    """The notices about tables, and what is known after these notices, by table. `now` is in seconds since 1970.

    What is known of tables without a measure stays.
    """
    notices, after = list[Notice](), dict(known)
    for measure in measures:
        table, seconds = str(measure.table), age(measure.as_of, now)
        old = known.get(table, HEALTHY)
        new = after[table] = Known(measure.error, _is_stale(seconds, measure.max_staleness, was_stale=old.stale))
        occasions: dict[Occasion, str] = {}
        if new.error and new.error != old.error:
            occasions["failed"] = new.error
        if new.stale and not old.stale:
            occasions["stale"] = new.error
        if new == HEALTHY and old != HEALTHY:
            occasions["recovered"] = old.error
        notices += (Notice(name, table, error, measure.position, seconds) for name, error in occasions.items())
    return notices, after


def _is_stale(seconds: float | None, objective: float | None, *, was_stale: bool) -> bool:
    """Whether an age misses its objective. While the age is not known, the answer is `was_stale`."""
    if objective is None:
        return False
    return was_stale if seconds is None else seconds > objective


def notices_of_run(known: Mapping[str, Known], error: str) -> tuple[list[Notice], dict[str, Known]]:
    """The notices about the whole run, which ended with this error ('': it ended well), and what is known after."""
    old, new = known.get(RUN, HEALTHY), Known(error)
    after = {**known, RUN: new}
    if new == old:
        return [], after
    return [Notice("failed", RUN, error) if error else Notice("recovered", RUN, old.error)], after
