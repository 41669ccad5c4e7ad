"""Doubles: one key in two shards, where pipeline.yml says that no two shards have one (`target.global_key`).

Shards are published one by one, but a row may move from shard to shard, and two rows may change places. So what readers
see is decided apart from what a shard has published: a commit of the shared table shows a shard's last publish only if
no other shard that it shows has one of its keys. A key that has left the other shard with that shard's last publish is
no double: one commit shows both publishes together. A key that has not left is a double, or the other shard is not yet
published as of the same time: then readers go on to see the shard as it was, and the next publish of either shard, or
the next run, tries again.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Double:
    """A key in the last publish of `shard` that `other` has, too, by the shards' names (`core.tables.shards.text_of`).

    `key` is a text for people. `has_left`: readers see the key in `other`, but the last publish of `other` lacks it.
    """

    shard: str
    other: str
    key: str
    has_left: bool


class StillDoubled(ValueError):
    """A key is in the last publishes of two shards. The first argument is its Double."""


def shown_together(shard: str, find: Callable[[str, AbstractSet[str]], Iterable[Double]]) -> frozenset[str]:
    """The shards whose last publishes one commit has to show, so that it shows that of `shard` without a double.

    `find` looks for doubles of a shard's last publish with other shards. Of those in its second argument the last
    publish counts; of all others what readers see. Raises StillDoubled.
    """
    together, examined = {shard}, set[str]()
    while left := sorted(together - examined):
        for double in find(left[0], frozenset(together)):
            if not double.has_left:
                raise StillDoubled(double)
            together.add(double.other)
        examined.add(left[0])
    return frozenset(together)
