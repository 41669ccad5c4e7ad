"""Doubles: one key in two shards, where pipeline.yml says that no two shards have the same key (`target.global_key`).

Shards are published one by one, but a row may move from shard to shard, and two rows may change places. So what readers
see is decided apart from what a shard has published. A commit of the shared table shows a shard's last publish only if
none of the keys in this publish is also in another shard, as the commit shows that shard.

If the other shard's last publish lacks the key, the key is no double: one commit shows both publishes together. If that
publish has the key, the key is a double, or the other shard is not yet published as of the same time. In both cases,
readers still see the first shard as it was. The next publish of either shard, or the next run, tries again to show it.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Double:
    """A key in the last publish of `shard` that `other` has, too.

    Both are names of shards (`core.tables.shards.text_of`). `key` is a text for people. `has_left`: readers see the key
    in `other`, but the last publish of `other` lacks it.
    """

    shard: str
    other: str
    key: str
    has_left: bool


class StillDoubled(ValueError):
    """A key is in the last publishes of two shards. The first argument is its Double."""


def shown_together(shard: str, find: Callable[[str, AbstractSet[str]], Iterable[Double]]) -> frozenset[str]:
    """`shard` and the shards whose last publishes one commit must show with it, so that it is shown without a double.

    `find` returns the doubles of one shard's last publish with other shards. Its second argument names the shards whose
    last publishes are shown together. Of all other shards, it compares what readers see. Raises StillDoubled.
    """
    together, examined = {shard}, set[str]()
    while unexamined := sorted(together - examined):
        for double in find(unexamined[0], frozenset(together)):
            if not double.has_left:
                raise StillDoubled(double)
            together.add(double.other)
        examined.add(unexamined[0])
    return frozenset(together)
