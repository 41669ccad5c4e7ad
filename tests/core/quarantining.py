"""A small executable model of the quarantine: a source, a lake with staging and main, evidence, and runs that die.

The steps of a run are those of the pipeline, and each is taken whole or not at all. `Progress` is the real one. Broken
models leave a rule out, and must be found.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from lakeingest.core.binlog.position import FilePosition, Position
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.keys import EVERY_KEY, Key
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.splits import Split
from lakeingest.core.waves.wave import MergePlan

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
KEYS, CHANGES, ROUNDS = 5, 3, 6
BAD = 90  # values from here on fail the gate
Rows = dict[int, int]


def position(number: int) -> Position:
    """The position after so many transactions."""
    return Position(SERVER, 0, FilePosition("binlog.000001", number), None)


@dataclass
class Commit:
    """A commit of staging: rows, and the progress as it is stored."""

    rows: Rows
    doc: str

    @property
    def progress(self) -> Progress:
        """The progress that the commit carries."""
        return progress_form.from_json(json.loads(self.doc))


def commit(rows: Rows, progress: Progress) -> Commit:
    """One of these rows, with this progress."""
    return Commit(dict(rows), json.dumps(progress_form.to_json(progress)))


@dataclass
class Evidence:
    """The stored row of a key that failed, and whether its key is known to be free again."""

    value: int
    closed: bool = False


@dataclass
class Model:
    """The source is a history of tables; `asked` are keys that somebody wants to be read again."""

    history: list[Rows]
    changed: list[set[int]]  # by transaction, the keys that it changes; the first one makes the table
    staging: list[Commit] = field(default_factory=list)
    main: Commit | None = None
    evidence: dict[tuple[int, int], Evidence] = field(default_factory=dict)  # by key and place
    asked: set[int] = field(default_factory=set)
    limit: int = BAD  # the gate as it is now

    @classmethod
    def new(cls, rows: Rows) -> "Model":
        """A table that was never copied."""
        model = cls([rows], [set(rows)])
        place = position(1).place
        progress = Progress(TableId("shop", "orders"), "f00d", SERVER, 0, place).created()
        progress = progress.wave_committed((Split(EVERY_KEY, low=place, high=place),), len(rows))
        model.staging.append(commit(rows, progress))
        return model

    @property
    def now(self) -> int:
        """The number of transactions, the first of which has made the table."""
        return len(self.history)

    def write(self, chance: random.Random) -> None:
        """One transaction: a row is written, deleted or moved, or all are deleted."""
        rows, key = dict(self.history[-1]), chance.randrange(KEYS)
        match chance.randrange(8):
            case 0:
                changed = {key}
                rows.pop(key, None)
            case 1:
                other = chance.randrange(KEYS)
                changed = {key, other}
                if key in rows:
                    rows[other] = rows.pop(key)
            case 2:
                changed = set(rows)
                rows.clear()
            case _:
                changed = {key}
                rows[key] = chance.randrange(100)
        self.history.append(rows)
        self.changed.append(changed)

    # A run: each `yield` is a point at which it may die.

    def run(self) -> Iterator[str]:
        """Merge, look at the rows, move those that fail, publish, close evidence."""
        yield from self.merge()
        yield from self.move_failing()
        yield from self.publish()
        self.close_evidence()
        yield "evidence closed"

    def merge(self) -> Iterator[str]:
        """Rows that were read again are as of now, like the merge."""
        tip = self.staging[-1]
        before = tip.progress
        since = 1 if before.position is None else before.position.at.pos
        changed = set().union(self.asked, *self.changed[since : self.now])
        if before.position is not None and since == self.now and not changed:
            return
        rows = {key: value for key, value in tip.rows.items() if key not in changed}
        rows |= {key: value for key, value in self.history[-1].items() if key in changed}
        stop = position(self.now)
        if before.position is not None and since == self.now:  # only rows that were read again
            merged = replace(before, rows=len(rows), quarantine=self.left(before, changed), phase=Phase.LEVEL)
        else:
            plan = MergePlan(before.splits, ((EVERY_KEY, before.splits.all[0].floor),), stop.place)
            freed = [(key,) for key in changed]
            merged = before.merged(plan, stop, len(rows), len(tip.rows), freed=freed)
            merged = replace(merged, quarantine=self.left(before, changed))
        self.staging.append(commit(rows, merged))
        self.asked = set()
        yield "merged"

    def left(self, before: Progress, changed: set[int]) -> tuple[Key, ...]:
        """The keys that stay in quarantine."""
        return tuple(key for key in before.quarantine if key[0] not in changed)

    def failing(self, rows: Rows) -> Rows:
        """The rows that the gate blames."""
        return {key: value for key, value in rows.items() if value >= self.limit}

    def move_failing(self) -> Iterator[str]:
        """Evidence first, then one commit that removes the rows and lists their keys."""
        tip = self.staging[-1]
        bad = self.failing(tip.rows)
        if not bad:
            return
        self.store_evidence(tip, bad)
        yield "evidence stored"
        rest = {key: value for key, value in tip.rows.items() if key not in bad}
        self.staging.append(commit(rest, tip.progress.quarantined([(key,) for key in bad], len(rest))))
        yield "moved"

    def store_evidence(self, tip: Commit, bad: Rows) -> None:
        """Of the same rows at the same place it is the same."""
        assert tip.progress.position is not None
        for key, value in bad.items():
            self.evidence[key, tip.progress.position.at.pos] = Evidence(value)

    def publish(self) -> Iterator[str]:
        """Nothing that fails is published."""
        tip = self.staging[-1]
        if self.failing(tip.rows):
            return
        if self.main is None or self.main.doc != tip.doc:
            shown = commit(tip.rows, tip.progress.audited().published())
            self.staging[-1] = self.main = shown
            yield "published"

    def close_evidence(self) -> None:
        """Of keys that readers see, or know to be gone."""
        assert self.main is not None
        listed = {key[0] for key in self.main.progress.quarantine}
        for (key, _), each in self.evidence.items():
            each.closed |= key not in listed

    # What must hold at every moment.

    def check(self) -> None:
        """What readers see is the source at its position, without the listed keys; there is evidence of each."""
        if self.main is None:
            return
        progress = self.main.progress
        assert progress.position is not None
        source = self.history[progress.position.at.pos - 1]
        listed = {int(key[0]) for key in progress.quarantine}
        assert self.main.rows == {key: value for key, value in source.items() if key not in listed}
        assert len(self.main.rows) == progress.rows
        open_keys = {key for (key, _), each in self.evidence.items() if not each.closed}
        assert listed <= open_keys
        for key in listed:
            assert any(each.value == source.get(key) for (one, _), each in self.evidence.items() if one == key)


class RowBeforeStays(Model):
    """The row that readers saw before stays."""

    def move_failing(self) -> Iterator[str]:
        """The list is right, and the rows are not."""
        old = {} if self.main is None else self.main.rows
        for step in super().move_failing():
            tip = self.staging[-1]
            if step == "moved":
                bad = {int(key[0]) for key in tip.progress.quarantine}
                rows = tip.rows | {key: value for key, value in old.items() if key in bad}
                self.staging[-1] = commit(rows, replace(tip.progress, rows=len(rows)))
            yield step


class ListAfterPublish(Model):
    """The list is a commit of its own, after the publish."""

    def move_failing(self) -> Iterator[str]:
        """The rows are removed, and not listed."""
        for step in super().move_failing():
            tip = self.staging[-1]
            if step == "moved":
                self.unlisted = tip.progress.quarantine
                self.staging[-1] = commit(tip.rows, replace(tip.progress, quarantine=()))
            yield step


class EvidenceLast(Model):
    """Evidence is stored after the commit that removes the rows."""

    def move_failing(self) -> Iterator[str]:
        """A run that dies in between has lost it."""
        tip = self.staging[-1]
        bad = self.failing(tip.rows)
        kept, self.evidence = self.evidence, dict(self.evidence)
        for step in super().move_failing():
            stored, self.evidence = self.evidence, kept
            if step == "moved":
                yield step
                self.evidence = stored
                self.store_evidence(tip, bad)


class ClosedFirst(Model):
    """Evidence is closed before readers see the row."""

    def publish(self) -> Iterator[str]:
        """Of keys that staging does not list."""
        listed = {key[0] for key in self.staging[-1].progress.quarantine}
        for (key, _), each in self.evidence.items():
            each.closed |= key not in listed
        yield "closed"
        yield from super().publish()


class FreedUnread(Model):
    """The stored row of a key that is asked for comes back, and the key is not read again."""

    def merge(self) -> Iterator[str]:
        """As of the place of the evidence, which is the past: the source may have written the row since."""
        listed = {int(key[0]) for key in self.staging[-1].progress.quarantine}
        asked, self.asked = self.asked & listed, set()
        stored = {key: each.value for (key, _), each in sorted(self.evidence.items()) if key in asked}
        steps = list(super().merge())
        if stored:
            tip = self.staging[-1]
            rows = tip.rows | stored
            progress = replace(tip.progress, quarantine=self.left(tip.progress, asked), rows=len(rows))
            self.staging.append(commit(rows, replace(progress, phase=Phase.LEVEL)))
        yield from [*steps, "freed"]


class StaysListed(Model):
    """A change of a listed key does not free it."""

    def left(self, before: Progress, changed: set[int]) -> tuple[Key, ...]:  # noqa: ARG002
        """All of them."""
        return before.quarantine


BREAKS = [RowBeforeStays, ListAfterPublish, EvidenceLast, ClosedFirst, FreedUnread, StaysListed]


def killed_anywhere(seed: int, kind: type[Model] = Model) -> None:
    """A random history; in each round one run dies after one more step than the run before, until one comes to its end.

    Between two of them the source writes. Then the limit of the gate may change, and keys be asked for.
    """
    chance = random.Random(seed)
    model = kind.new({key: chance.randrange(100) for key in range(KEYS)})
    for _ in range(ROUNDS):
        for steps in count(1):
            for _ in range(chance.randrange(CHANGES)):
                model.write(chance)
            run = model.run()
            taken = 0
            for _ in run:
                taken += 1
                model.check()
                if taken == steps:
                    break
            if taken < steps:
                break
        assert model.main is not None
        assert model.main.progress.position == position(model.now)
        listed = {key[0] for key in model.main.progress.quarantine}
        assert {key for (key, _), each in model.evidence.items() if not each.closed} == listed
        model.limit = chance.choice([BAD, BAD, BAD - 40, 101])
        if chance.random() < 1 / 2:
            model.asked = {int(key[0]) for key in model.main.progress.quarantine}
