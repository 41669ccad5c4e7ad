"""Decides which range of which table is compared with the source next, and keeps the state of each range.

A range of keys is proven when a comparison has found source = target in it. The proof is lost when something happens
that could have changed rows of the copy in another way than rows of the source. A range whose proof is lost is compared
out of turn.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.splits import range_from_json

DUE_SHARE = 0.8  # of `every`: the age of a proof at which its range is due, so that its turn comes before `every`
RECHECK_SECONDS = 3_600.0  # between two comparisons of a range that differs
RANGE_SECONDS = 1.0  # of the source's time: the aim for the comparison of a range
FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 10_000, 1_000, 500_000  # of a range
MOST_CREDIT = 10.0  # seconds of the source's time that can be saved up while nothing is due
DAY = 86_400.0


class State(enum.Enum):
    """The state of a range."""

    UNPROVEN = "not proven yet"
    PROVEN = "proven"
    LOST = "proof lost"  # it was proven or differed, and something has happened since
    DIFFERS = "differs"


class Turn(enum.Enum):
    """What changes the state of a range."""

    EQUAL = "source = target"
    DIFFERENT = "source ≠ target"
    DOUBTED = "something happened that could have changed rows of the copy"
    REREAD = "rows of the copy were replaced"


TRANSITIONS: Mapping[tuple[State, Turn], State] = {
    **{(state, Turn.EQUAL): State.PROVEN for state in State},
    **{(state, Turn.DIFFERENT): State.DIFFERS for state in State},
    (State.UNPROVEN, Turn.DOUBTED): State.UNPROVEN,
    (State.PROVEN, Turn.DOUBTED): State.LOST,
    (State.LOST, Turn.DOUBTED): State.LOST,
    (State.DIFFERS, Turn.DOUBTED): State.DIFFERS,  # the difference is still there, as far as anybody knows
    (State.UNPROVEN, Turn.REREAD): State.UNPROVEN,
    (State.PROVEN, Turn.REREAD): State.LOST,
    (State.LOST, Turn.REREAD): State.LOST,
    (State.DIFFERS, Turn.REREAD): State.LOST,
}


@dataclass(frozen=True, slots=True)
class RangeProof:
    """A range of keys, with its state.

    `proven_at`: when the range was last proven (seconds since 1970); `position`: the published position at that time.
    Both are None if the range was never proven. `checked_at`: when it was last compared; None if it never was. `why`:
    why the proof is lost, or what differs. `seconds`: the source's time for the last comparison; None if not known.
    """

    keys: KeyRange = EVERY_KEY
    state: State = State.UNPROVEN
    proven_at: float | None = None
    position: str | None = None
    checked_at: float | None = None
    why: str = ""
    seconds: float | None = None

    def after(self, turn: Turn, why: str = "") -> Self:
        """The range after the event `turn`. If the event changes the state, `why` is the reason."""
        following = TRANSITIONS[self.state, turn]
        return self if following is self.state else replace(self, state=following, why=why)

    def compared(self, turn: Turn, now: float, seconds: float, position: str, why: str = "") -> Self:
        """The range after a comparison as of a published position, with the result `turn` (EQUAL or DIFFERENT).

        `seconds`: the source's time for the comparison. `why`: what differs.
        """
        known = replace(self.after(turn), why=why, checked_at=now, seconds=seconds)
        return replace(known, proven_at=now, position=position) if turn is Turn.EQUAL else known

    def is_due(self, now: float, every: float) -> bool:
        """Whether the range is to be compared. `every`: the aim for the age of its proof, in seconds."""
        match self.state:
            case State.PROVEN:
                since, pause = self.proven_at, DUE_SHARE * every
            case State.DIFFERS:
                since, pause = self.checked_at, RECHECK_SECONDS
            case _:
                return True
        return since is None or not 0 <= now - since < pause  # a time ahead of the clock says nothing

    @property
    def keys_text(self) -> str:
        """The range of keys in words."""
        lower, upper = (", ".join(map(str, bound or ())) for bound in (self.keys.lower, self.keys.upper))
        if not lower and not upper:
            return "range of all keys"
        return "range of keys" + (f" from {lower}" if lower else "") + (f" to before {upper}" if upper else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        names = ("proven_at", "position", "checked_at", "why", "seconds")
        bounds = {"keys": self.keys_text, "lower": self.keys.lower, "upper": self.keys.upper}
        return bounds | {"state": self.state.value} | {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        times = {name: None if doc[name] is None else float(doc[name]) for name in ("proven_at", "checked_at")}
        position = None if doc["position"] is None else str(doc["position"])
        seconds = None if doc["seconds"] is None else float(doc["seconds"])
        keys, state = range_from_json(doc), State(doc["state"])
        return cls(keys, state, position=position, why=str(doc["why"]), seconds=seconds, **times)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run knows of a copy, and what a change of these facts means for proofs.

    `key`: the columns of the key, with their types. `begun`: the place at which the copy was begun. `fingerprint`: that
    of the definition. `server`, `epoch`: the source's history. `restarts`: how often the copy was started over, or went
    on over a gap. `place`: the place as of which readers see the copy; None if the run does not know it. `signal`: the
    number of the table's last re-snapshot or rollback that has ended; 0 if none has.
    """

    key: str
    begun: str
    fingerprint: str
    server: str
    epoch: int
    restarts: int
    place: Place | None
    signal: int

    def doubt(self, before: Self) -> tuple[Turn, str] | None:
        """The event that ends the proofs from the time of the facts `before`, and its reason; None if they hold."""
        if (self.server, self.epoch) != (before.server, before.epoch):
            return Turn.DOUBTED, "the source is another server now"
        if (self.begun, self.restarts) != (before.begun, before.restarts):
            return Turn.REREAD, "its copy was begun again"
        if self.signal > before.signal:
            return Turn.REREAD, f"signal {self.signal} has replaced rows of the copy"
        if self.place is not None and before.place is not None and self.place < before.place:
            return Turn.REREAD, "its published position went back"
        if self.fingerprint != before.fingerprint:
            return Turn.DOUBTED, "its definition was changed"
        return None

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        names = ("key", "begun", "fingerprint", "server", "epoch", "restarts", "signal")
        place = None if self.place is None else str(self.place)
        return {name: getattr(self, name) for name in names} | {"place": place}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable or an error of `errors.DAMAGED` for another document."""
        place = None if doc["place"] is None else Place.parse(doc["place"])
        key, begun, fingerprint, server = (str(doc[name]) for name in ("key", "begun", "fingerprint", "server"))
        return cls(key, begun, fingerprint, server, int(doc["epoch"]), int(doc["restarts"]), place, int(doc["signal"]))


@dataclass(frozen=True, slots=True)
class Failed:
    """A comparison that ended with an error. `at`: when it ended (seconds since 1970). `why`: the error."""

    at: float
    why: str

    @classmethod
    def from_json(cls, doc: Mapping[str, Any] | None) -> Self | None:
        """The failed comparison in a document; None for None."""
        return None if doc is None else cls(float(doc["at"]), str(doc["why"]))


@dataclass(frozen=True, slots=True)
class TableProof:
    """All ranges of a table with their states, in ascending order. Together they have all keys.

    `rate`: rows that the source compares in a second; None if it is not known. `failed`: the last comparison of the
    table, if it has failed; None if it has not.
    """

    facts: Facts
    ranges: tuple[RangeProof, ...] = (RangeProof(),)
    rate: float | None = None
    failed: Failed | None = None

    def __post_init__(self) -> None:
        keys = [proof.keys for proof in self.ranges]
        are_all = bool(keys) and keys[0].lower is None and keys[-1].upper is None
        if not are_all or not all(first.touches(second) for first, second in pairwise(keys)):
            raise ValueError(f"the ranges do not have all keys, each once: {keys}")

    def under(self, facts: Facts) -> Self:
        """The table's proof once the copy has these facts. If the key is another one, no range is proven."""
        if facts.key != self.facts.key:
            return type(self)(facts)
        doubt = facts.doubt(self.facts)
        # a place that this run does not know (None) and a signal that it does not find (0) stay as they were
        known = replace(facts, place=facts.place or self.facts.place, signal=max(facts.signal, self.facts.signal))
        if doubt is None:
            return replace(self, facts=known)
        return replace(self, facts=known, ranges=tuple(proof.after(*doubt) for proof in self.ranges))

    @property
    def rows(self) -> int:
        """The number of rows that the next range should have."""
        if self.rate is None:
            return FIRST_ROWS
        return max(LEAST_ROWS, min(MOST_ROWS, int(self.rate * RANGE_SECONDS)))

    def first_due(self, now: float, every: float) -> RangeProof | None:
        """The range of this table that is compared next; None if none is due."""
        due = [proof for proof in self.ranges if proof.is_due(now, every)]
        return min(due, key=_urgency, default=None)

    def end_after(self, first: RangeProof) -> Key | None:
        """The upper bound of a comparison that begins with the range `first`; None if it goes to the last key.

        A range that differs is compared alone, so that it does not hold up other ranges.
        """
        if first.state is State.DIFFERS:
            return first.keys.upper
        following = self.ranges[self.ranges.index(first) + 1 :]
        return next((each.keys.lower for each in following if each.state is State.DIFFERS), None)

    def with_ranges(self, compared: Sequence[RangeProof], rate: float | None = None) -> Self:
        """The table's proof with the ranges `compared`. An old range keeps only the keys that none of these has.

        The last comparison of the table has not failed, so `failed` becomes None.
        """
        ranges = self.ranges
        for new in compared:
            ranges = (*(part for old in ranges for part in _rest(old, new.keys)), new)
        # a range without a lower bound comes first
        ordered = sorted(ranges, key=lambda proof: (proof.keys.lower is not None, proof.keys.lower or ()))
        return replace(self, ranges=tuple(ordered), rate=rate or self.rate, failed=None)

    @property
    def checked_at(self) -> float:
        """When a range of the table was last compared; 0 if none ever was."""
        return max((proof.checked_at or 0.0 for proof in self.ranges), default=0.0)

    @property
    def seconds(self) -> float | None:
        """The source's time for all ranges together; None if it is not known for one of them."""
        known = [proof.seconds for proof in self.ranges if proof.seconds is not None]
        return sum(known) if len(known) == len(self.ranges) else None

    @property
    def proven_since(self) -> float | None:
        """Each range was last proven at this time or later; None if one of them is not proven."""
        times = [proof.proven_at for proof in self.ranges if proof.state is State.PROVEN]
        return min(time or 0.0 for time in times) if len(times) == len(self.ranges) else None

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        ranges = [proof.to_json() for proof in self.ranges]
        failed = None if self.failed is None else {"at": self.failed.at, "why": self.failed.why}
        return {"facts": self.facts.to_json(), "rate": self.rate, "ranges": ranges, "failed": failed}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable or an error of `errors.DAMAGED` for another document."""
        rate = None if doc["rate"] is None else float(doc["rate"])
        failed = Failed.from_json(doc["failed"])
        return cls(Facts.from_json(doc["facts"]), tuple(map(RangeProof.from_json, doc["ranges"])), rate, failed)


def _rest(old: RangeProof, by: KeyRange) -> list[RangeProof]:
    """The parts of the range `old` that are outside of the range `by`."""
    before, _, after = old.keys.parted(by)
    return [replace(old, keys=keys) for keys in (before, after) if keys is not None]


_RANKS = {State.LOST: 0, State.DIFFERS: 1, State.UNPROVEN: 2, State.PROVEN: 3}


def _urgency(proof: RangeProof) -> tuple[int, float]:
    """Lost proofs come first, then ranges that differ, then ranges that were never proven, then the oldest proof."""
    return _RANKS[proof.state], (proof.proven_at or 0.0) if proof.state is State.PROVEN else 0.0


def next_due(
    proofs: Mapping[TableId, TableProof], now: float, every: float, left_out: Collection[TableId] = ()
) -> tuple[TableId, RangeProof] | None:
    """The range that is compared next, and its table; None if none is due. Tables in `left_out` are not compared now.

    Of several equally urgent ranges, the one of the table that has waited longest.
    """
    due = {
        table: first
        for table, proof in proofs.items()
        if table not in left_out and (first := proof.first_due(now, every)) is not None
    }
    chosen = min(due, key=lambda table: (*_urgency(due[table]), proofs[table].checked_at, table), default=None)
    return None if chosen is None else (chosen, due[chosen])


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the source's time comparisons may take: the `share` of the time that passes.

    `owed`: the seconds by which comparisons have exceeded their share; below 0: the seconds that are saved up.
    `at`: as of this time (seconds since 1970). `waits`: why comparisons waited at that time, if not for the budget; ''
    if they did not wait for anything else.
    """

    share: float
    owed: float = 0.0
    at: float = 0.0
    waits: str = ""

    @property
    def allows(self) -> bool:
        """Whether a comparison may begin."""
        return self.owed <= 0

    @property
    def seconds_left(self) -> float:
        """The seconds until a comparison may begin; 0 if one may begin."""
        return max(0.0, self.owed / self.share)

    def passed(self, now: float) -> Self:
        """The budget at the time `now`, after time in a run: the share of that time is paid off, or saved up."""
        return replace(self, owed=max(-MOST_CREDIT, self.owed - self.share * max(0.0, now - self.at)), at=now)

    def resumed(self, now: float) -> Self:
        """The budget when a run begins: in the time without a run a debt is paid off, and nothing is saved up."""
        return replace(self, owed=max(0.0, self.passed(now).owed), at=now)

    def spent(self, seconds: float) -> Self:
        """The budget after a comparison for which the source took `seconds` seconds."""
        return replace(self, owed=self.owed + seconds)


@dataclass(frozen=True, slots=True)
class Round:
    """How long it takes to prove all tables once: `days`, within the budget; None if that is not known yet.

    `every_days`: the aim for the age of proofs. `proven_tables`: how many of all `tables` have a proof of each range.
    """

    days: float | None
    every_days: float
    proven_tables: int
    tables: int

    @classmethod
    def of(cls, proofs: Collection[TableProof], share: float, every: float) -> Self:
        """The round of these tables. `share`: the budget's; `every`: the aim for the age of proofs, in seconds."""
        seconds = [proof.seconds for proof in proofs]
        known = [each for each in seconds if each is not None]
        days = sum(known) / share / DAY if len(known) == len(seconds) else None
        proven = sum(proof.proven_since is not None for proof in proofs)
        return cls(days, every / DAY, proven, len(proofs))

    @property
    def is_too_long(self) -> bool:
        """Whether it is known that the tables cannot be proven as often as asked."""
        return self.days is not None and self.days > self.every_days

    def __str__(self) -> str:
        proven = f"{self.proven_tables:,} of {self.tables:,} tables are proven equal in all their keys"
        if self.days is None:
            return f"{proven}; how long a round takes is not known before each range was compared once"
        if self.is_too_long:
            return f"{proven}; a round takes {self.days:.1f} days with this budget, and every is {self.every_days:.1f}"
        return f"{proven}; a round takes {self.days:.1f} days"
