"""Shards: tables of the source whose rows readers find in one table, and how that table is made of them.

In the lake, a shard has all that any copy has: staging, progress, commits. Readers query the *shared table*, which has
no files of its own. Each of its commits lists files of the shards, and says from which commit of each shard they are.
A shard is published first; then a commit of the shared table shows it. After a crash in between, the next run shows it.

Columns of shards with the same name are one column of the shared table. Files name columns by field ids, so a column
must have the same id in every shard. So the id is computed from the name and from the family of the type. Two types of
one family can be widened to one of them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from lakeingest.core.tables.schema import TableId

_IDS = 1_000_000_000  # so many field ids are possible; Iceberg's own begin at 2^31 - 200
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_INTEGERS = ("int", "long")  # in the order in which they are widened


class ShardsDiffer(ValueError):
    """The columns of a shard cannot be columns of the shared table."""


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column of a shard, or of the shared table: its name, and its type as Iceberg writes it."""

    name: str
    kind: str

    @property
    def field_id(self) -> int:
        """The field id that the column has in each shard."""
        return field_id(self.name, self.kind)


def family(kind: str) -> str:
    """The family of a type. Of two types of one family, one can be widened to the other."""
    if kind in _INTEGERS:
        return "integer"
    if (decimal := _DECIMAL.fullmatch(kind)) is not None:
        return f"decimal of scale {decimal[2]}"
    return kind


def field_id(name: str, kind: str, part: str = "") -> int:
    """The field id of a column. Names that differ only in case are one name.

    `part`: a part of the column that has an id of its own, such as the elements of a list; '' for the column itself.
    """
    text = "\0".join((name.casefold(), family(kind), part))
    return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _IDS


def wider(one: str, other: str) -> str:
    """The type that holds every value of both types, which are of one family."""
    if one == other:
        return one
    if one in _INTEGERS:
        return _INTEGERS[1]
    # two decimals of one scale: no other family has several types
    precisions = [int(decimal[1]) for decimal in map(_DECIMAL.fullmatch, (one, other)) if decimal is not None]
    return one if precisions[0] > precisions[1] else other


def joined(
    shared: Sequence[SharedColumn], key: Sequence[str], shard: Sequence[SharedColumn], key_of_shard: Sequence[str]
) -> tuple[SharedColumn, ...]:
    """The columns of the shared table, now `shared`, once it also has the rows of a shard with the columns `shard`.

    `key` and `key_of_shard`: the names of the key columns of the shared table and of the shard. A column of the shared
    table keeps its name, and stays if the shard lacks it. Raises ShardsDiffer if the keys, or columns of one name, do
    not fit, or if columns of two names have one field id.
    """
    if {name.casefold() for name in key} != {name.casefold() for name in key_of_shard}:
        raise ShardsDiffer(f"its key is {_listed(key_of_shard)}, and that of the other shards is {_listed(key)}")
    columns = {column.name.casefold(): column for column in shared}
    for column in shard:
        present = columns.get(column.name.casefold())
        if present is None:
            columns[column.name.casefold()] = column
        elif family(present.kind) != family(column.kind):
            raise ShardsDiffer(f"{column.name} is {column.kind}, and {present.kind} in the other shards")
        else:
            columns[column.name.casefold()] = SharedColumn(present.name, wider(present.kind, column.kind))
    names: dict[int, str] = {}
    for column in columns.values():
        if (other := names.setdefault(column.field_id, column.name)) != column.name:
            raise ShardsDiffer(f"{column.name} has the field id of {other}; give it another name in the copy")
    return tuple(columns.values())


def _listed(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"


def text_of(shard: TableId) -> str:
    """The name of a shard: a slash separates database and table, which may have dots. No two shards have one name."""
    return f"{shard.database.replace('%', '%25').replace('/', '%2F')}/{shard.name}"


def shard_of(text: str) -> TableId:
    """The shard with this name, which `text_of` has made."""
    database, _, name = text.partition("/")
    return TableId(database.replace("%2F", "/").replace("%25", "%"), name)


@dataclass(frozen=True, slots=True)
class Showing:
    """Which commit of each shard a commit of the shared table shows. `commits`: by the text of `text_of`."""

    commits: Mapping[str, int]

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The inverse of `to_text`. Raises one of errors.DAMAGED for another text."""
        return cls({str(shard): int(commit) for shard, commit in json.loads(text).items()})

    def to_text(self) -> str:
        """A text that `of_text` reads back."""
        return json.dumps(self.commits, separators=(",", ":"), ensure_ascii=False)

    def commit_of(self, shard: TableId) -> int | None:
        """The commit of this shard that readers of the shared table see; None if they see none of its commits."""
        return self.commits.get(text_of(shard))

    def showing(self, commits: Mapping[str, int]) -> Self:
        """The same value, but with these `commits`. Shards that `commits` does not name stay as they are."""
        return type(self)({**self.commits, **commits})


NOTHING = Showing({})


def held(showings: Iterable[Showing], shard: TableId) -> frozenset[int]:
    """The commits of a shard that commits of the shared table show, and whose files therefore stay."""
    found = (showing.commit_of(shard) for showing in showings)
    return frozenset(commit for commit in found if commit is not None)
