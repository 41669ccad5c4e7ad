"""Dataclasses whose methods are made late behave as all others."""

import dataclasses
import pickle
import sys
from dataclasses import FrozenInstanceError
from types import ModuleType
from typing import Any

import pytest

from lakeingest.late_methods import make_methods_late

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python makes the methods in another way")
CLASSES = """
from dataclasses import dataclass, field

@dataclass(frozen=True, slots=True, order=True)
class Point:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False)

@dataclass(frozen=True, slots=True)
class Named(Point):
    name: str = "none"

    def __post_init__(self):
        if not self.name:
            raise ValueError("no name")

@dataclass
class Node:
    next: "Node | None" = None
    self: int = 0
"""


def module_of(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A module of this name with CLASSES."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(CLASSES, module.__dict__)  # noqa: S102 - so that the classes are of this module
    return module


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of lakeingest, in a process that makes methods late. The other tests make them at once."""
    monkeypatch.setattr(dataclasses, "_create_fn", getattr(dataclasses, "_create_fn"))  # noqa: B009 - restored later
    make_methods_late()
    make_methods_late()  # a second call changes nothing
    return module_of(monkeypatch, "lakeingest.made_up")


def is_late(method: Any) -> bool:
    """Whether the method was not made yet."""
    return bool(method.__code__.co_name == "late")


def test_a_method_is_made_when_it_is_first_called(late: Any) -> None:
    """From then on the class has the real method, also if it was called for a class that inherits it."""
    assert all(is_late(late.Point.__dict__[name]) for name in ("__init__", "__eq__", "__hash__", "__lt__"))
    point = late.Point(1)
    assert not is_late(late.Point.__dict__["__init__"])
    assert is_late(late.Point.__dict__["__hash__"])
    assert late.Point.__init__.__qualname__ == "Point.__init__"
    assert late.Named(1, name="a") < late.Named(2)
    assert not is_late(late.Named.__dict__["__init__"])
    assert point.y == 2
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        late.Point()


def test_classes_with_late_methods_behave_as_all_others(late: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They construct, compare, hash, copy, pickle and represent values alike, and stay frozen."""
    usual = module_of(monkeypatch, "made_up_elsewhere")
    assert not is_late(usual.Point.__init__)  # only our classes are late
    for module in (late, usual):
        point = module.Point(1, seen=[3])
        assert (point, hash(point)) == (module.Point(1), hash(module.Point(1)))
        assert point != module.Point(2)
        assert point != module.Named(1)
        assert point < dataclasses.replace(point, y=3)
        assert sorted([module.Point(2), point]) == [point, module.Point(2)]
        assert repr(point) == "Point(x=1, y=2, seen=[3])"
        assert pickle.loads(pickle.dumps(point)) == point  # noqa: S301 - our own
        assert (module.Point(1).seen, dataclasses.asdict(point)) == ([], {"x": 1, "y": 2, "seen": [3]})
        assert module.Point.__match_args__ == ("x", "y", "seen")
        with pytest.raises(FrozenInstanceError):
            point.x = 2
        with pytest.raises(FrozenInstanceError):
            del point.x
        with pytest.raises(ValueError, match="no name"):
            module.Named(1, name="")
        node = module.Node(self=5)
        node.next = node
        assert repr(node) == "Node(next=..., self=5)"
        assert (node.self, module.Node.__hash__) == (5, None)
