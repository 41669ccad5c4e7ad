"""Shapes of copies by chance: columns that are left out, hidden, cast or renamed, a condition, partitions, an order.

A shape is drawn from the seed of its table, and the grammar draws mostly such types as its columns can have in it.
Where DDL gives a column another type all the same, the table may stop by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import SecretStr

from lakeingest.config.tables import TableOptions, Tables
from tests.e2e import ddl_types
from tests.e2e.ddl_grammar import Grammar, Statement
from tests.e2e.ddl_histories import ASIDE, Drawn
from tests.e2e.shaped_values import SECRET, SUITABLE, role_of

COLUMNS = 60  # that have a role by chance; the grammar names them c1, c2, …
CONDITION = "c1"  # the column of the condition on rows, if there is one
ROLES = ("", "", "", "", "", "exclude", "hash", "mask", "string", "string", "bigint")
_DECIMALS = dict.fromkeys(("numeric", "dec", "fixed"), "decimal")
REDRAWN = 30  # times that a type is drawn, until the role of its column can have it


def shape(seed: int, *, divided: bool = False, plain: bool = False) -> TableOptions:
    """The options of the table with this seed.

    `divided`: it may have partitions and an order. `plain`: what Hudi can have: no order, and names in the copy have
    letters and digits alone.
    """
    chance = Random(f"shape {seed}")
    roles = {f"c{number}": chance.choice(ROLES) for number in range(1, COLUMNS + 1)}
    options: dict[str, Any] = {}
    if chance.random() < 0.3:
        roles[CONDITION] = ""
        options["rows"] = f"{CONDITION} IS {chance.choice(['', 'NOT '])}NULL"
    kept = [name for name, role in roles.items() if role != "exclude"]
    rename = {name: f"{name}_{seed}" if plain else f"{name} ☕.`{seed}`" for name in kept if chance.random() < 0.2}
    if chance.random() < 0.3:
        rename["id"] = "the_key" if plain else "the key"
    lists = {key: [name for name, role in roles.items() if role == key] for key in ("exclude", "hash", "mask")}
    cast = {name: role for name, role in roles.items() if role in {"string", "bigint"}}
    options["columns"] = {**lists, "cast": cast, "rename": rename}
    key = rename.get("id", "id")
    if divided and chance.random() < 0.4:
        options["partition_by"] = [f"bucket(3, {key})"]
    if divided and not plain and chance.random() < 0.4:
        options["sort_by"] = [f"{key} desc"]
    return TableOptions.model_validate(options)


class ShapedGrammar(Grammar):
    """Draws no table that refers to the table: its foreign key would need the columns as they are.

    Of a table with a condition on rows, it draws changes by which several rows come to meet it, or cease to.
    """

    def __init__(self, chance: Random, options: TableOptions) -> None:
        super().__init__(chance)
        self._columns = options.columns
        self._has_condition = bool(options.rows)

    def dml(self) -> Iterator[Statement]:
        """One change of rows."""
        if not self._has_condition or CONDITION not in self.known.columns or self.chance.random() < 0.5:
            yield from super().dml()
            return
        value = self._pick(["NULL", self._value(CONDITION)])
        third = f" WHERE CRC32({self.known.key[0]}) % 3 = {self.chance.randrange(3)}"
        yield Statement("UPDATE {t} SET ", (f"{CONDITION} = {value}",), third)

    def _kid(self, key: str) -> Iterator[Statement]:  # noqa: ARG002 - the base's
        yield from ()

    def _definition(self, name: str, known: str = "") -> str:
        role = role_of(self._columns, name)
        for _ in range(REDRAWN):
            found = super()._definition(name, known)
            type_ = ddl_types.name_of(found)
            if not role or _DECIMALS.get(type_, type_) in SUITABLE[role]:
                break
        return found


@dataclass
class Shaped(Drawn):
    """A history by chance of a table whose copy has a shape."""

    def __post_init__(self) -> None:
        self.grammar = ShapedGrammar(Random(self.seed), shape(self.seed))
        self.name = f"s{self.seed}"


def with_shapes(tables: Tables, database: str, seeds: Iterable[int], **how: bool) -> Tables:
    """The options of the tables of `Shaped`, also of those that are told again; `how`: as `shape` has it."""
    options = {f"re:{database}\\.s{seed}(x.*)?": shape(seed, **how) for seed in seeds}
    aside = tuple(f"{database}.*_{end}" for end in ASIDE)
    update = {"options": {**tables.options, **options}, "exclude": aside, "hash_key": SecretStr(SECRET)}
    return tables.model_copy(update=update)
