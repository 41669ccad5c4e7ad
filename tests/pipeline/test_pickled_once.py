"""A value that tasks share travels once, and stays the same value."""

import pickle

from lakeingest.pipeline.run.pickled_once import PickledOnce


class Counted:
    """Counts how often it is pickled."""

    pickled = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[type["Counted"], tuple[str]]:
        Counted.pickled += 1
        return Counted, (self.name,)


def test_many_tasks_pickle_their_value_once() -> None:
    """Each of them arrives with it, as one object in a process; another value is another object."""
    shared, other = PickledOnce(Counted("wave 1")), PickledOnce(Counted("wave 2"))
    sent = [pickle.dumps((shared, number)) for number in range(5)]
    assert Counted.pickled == 1
    arrived = [pickle.loads(task) for task in sent]  # noqa: S301 - our own
    assert [number for _, number in arrived] == [0, 1, 2, 3, 4]
    assert {(id(task.value), task.value.name) for task, _ in arrived} == {(id(arrived[0][0].value), "wave 1")}
    assert pickle.loads(pickle.dumps(other)).value.name == "wave 2"  # noqa: S301 - our own
    again = pickle.loads(pickle.dumps(arrived[0][0]))  # noqa: S301 - our own; what arrived can be sent again
    assert again.value.name == "wave 1"
