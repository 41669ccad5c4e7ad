"""A value is written into a document as `dataclasses.asdict` would return it."""

from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from lakeingest.core.plain import plain
from lakeingest.core.tables.schema import Kind


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in another value."""

    name: str
    kind: Kind = Kind.INT32
    among: frozenset[int] = frozenset({1})


@dataclass
class Bare:
    """A value without fields."""


@dataclass
class Tree:
    """A value with values of all kinds."""

    leaves: tuple[Leaf, ...]
    by_name: dict[str, Leaf]
    mixed: list[Any] = field(default_factory=list)
    nothing: None = None


TREE = Tree((Leaf("a"), Leaf("b")), {"c": Leaf("c")}, [1, "x", (2.5, b"y"), [Leaf("d")], {"e": None}, True])


@pytest.mark.parametrize("value", [TREE, Leaf("a"), Bare(), Tree((), {}, [Bare(), Leaf])])
def test_it_is_what_asdict_returns(value: Any) -> None:
    """Also with the same types."""
    assert plain(value) == asdict(value)
    assert repr(plain(value)) == repr(asdict(value))


def test_a_document_can_be_changed_without_its_value() -> None:
    """The document's dictionaries and lists are its own."""
    doc = plain(TREE)
    doc["by_name"].clear()
    doc["mixed"].append(2)
    doc["leaves"][0]["name"] = "z"
    assert TREE.by_name == {"c": Leaf("c")}
    assert len(TREE.mixed) == 6
    assert TREE.leaves[0] == Leaf("a")
