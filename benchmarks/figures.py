"""The figures of whole pipelines: every round as it was measured, kept in a JSON file."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

OURS = "lakeingest"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one participant took once; seconds are of wall unless said otherwise, memory is in bytes.

    `startup` is until it was ready, and is part of `wall`; likewise with the processors' seconds. `count` are rows,
    changes or bytes, as `unit` says. `reading` are the seconds of a full scan afterwards.
    """

    scenario: str
    participant: str
    round: int
    count: int
    wall: float
    unit: str = "rows"
    startup: float = 0.0
    cpu: float = 0.0
    startup_cpu: float = 0.0
    rss: int = 0
    rss_largest: int = 0
    equal: str = ""  # `yes`, or what differs; empty where it was not looked at
    reading: float | None = None
    table_rows: int = 0
    keys: str = ""  # which ones changed
    freshness: tuple[float, ...] = ()

    @property
    def net(self) -> float:
        """Seconds without the start-up."""
        return self.wall - self.startup

    @property
    def net_cpu(self) -> float:
        """Seconds of processors without the start-up."""
        return self.cpu - self.startup_cpu

    @property
    def rate(self) -> float:
        """So many a second, without the start-up."""
        return self.count / self.net


@dataclass(slots=True)
class Figures:
    """All figures of a run; the file, where there is one, is written anew with each of them."""

    about: dict[str, Any]
    file: Path | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)  # what has to be known beside a participant's figures
    not_measured: dict[str, str] = field(default_factory=dict)  # scenario and participant, and why
    all: list[Figure] = field(default_factory=list)

    @classmethod
    def load(cls, file: Path) -> Self:
        """Those of an earlier run."""
        doc = json.loads(file.read_text())
        rounds = [Figure(**{**one, "freshness": tuple(one["freshness"])}) for one in doc.pop("rounds")]
        return cls(**doc, all=rounds)

    def add(self, figure: Figure) -> None:
        """Keep a round."""
        self.all.append(figure)
        self._save()

    def leave_out(self, scenario: str, participant: str, reason: str) -> None:
        """Keep why there are no (more) rounds of a participant."""
        self.not_measured[f"{scenario}: {participant}"] = reason
        self._save()

    def is_left_out(self, scenario: str, participant: str) -> bool:
        """Whether it was."""
        return f"{scenario}: {participant}" in self.not_measured

    def of(self, scenario: str, participant: str | None = None) -> list[Figure]:
        """The rounds of a scenario, of one participant or of all."""
        return [one for one in self.all if one.scenario == scenario and participant in {None, one.participant}]

    def participants(self, scenario: str) -> list[str]:
        """Who has rounds of a scenario, in the order of the first."""
        return list(dict.fromkeys(one.participant for one in self.of(scenario)))

    def ratios(self, rounds: Sequence[Figure], value: Callable[[Figure], float]) -> list[float]:
        """Ours ÷ a participant's value in each of its rounds that ours has as well."""
        ours = {(one.scenario, one.round): one for one in self.all if one.participant == OURS}
        pairs = [(ours.get((one.scenario, one.round)), one) for one in rounds]
        return [value(our) / value(one) for our, one in pairs if our is not None]

    def _save(self) -> None:
        if self.file is not None:
            doc = {
                "about": self.about,
                "notes": self.notes,
                "not_measured": self.not_measured,
                "rounds": [asdict(one) for one in self.all],
            }
            written = self.file.with_suffix(".part")
            written.write_text(json.dumps(doc, indent=1, ensure_ascii=False))
            written.replace(self.file)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The least, the median and the greatest."""
    return min(values), statistics.median(values), max(values)
