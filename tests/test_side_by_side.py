"""Calls at the same time: their results and errors are in order, and an error leaves no call behind."""

import threading
import time

import pytest

from lakeingest.side_by_side import side_by_side


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_results_are_in_the_order_of_the_items(at_once: int) -> None:
    """Also if a later call ends first."""

    def call(number: int) -> int:
        time.sleep((5 - number) / 100)
        return number * 10

    assert side_by_side(call, range(5), at_once) == [0, 10, 20, 30, 40]
    assert side_by_side(call, (), at_once) == []


@pytest.mark.parametrize("at_once", [2, 3, 8])
def test_no_more_calls_than_that_run_at_the_same_time(at_once: int) -> None:
    """And as many as that do."""
    running, most, lock = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    side_by_side(call, range(20), at_once)
    assert most == at_once


def test_an_error_is_raised_when_the_calls_that_have_begun_have_ended() -> None:
    """The others never begin."""
    begun, ended = list[int](), list[int]()

    def call(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("the first")
        time.sleep(0.2)
        ended.append(number)

    with pytest.raises(ValueError, match="the first"):
        side_by_side(call, range(50), 4)
    assert len(begun) < 50
    assert sorted(ended) == sorted(set(begun) - {0})


def test_an_error_is_noticed_while_the_call_of_an_earlier_item_still_runs() -> None:
    """No call begins in the meantime."""
    begun = list[int]()

    def call(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("the second")
        time.sleep(0.3 if number == 0 else 0.05)

    with pytest.raises(ValueError, match="the second"):
        side_by_side(call, range(50), 2)
    assert max(begun) <= 2  # the thread of the second may take one more before it is told


def test_the_first_error_in_the_order_of_the_items_is_raised() -> None:
    """Not the one that came first."""

    def call(number: int) -> None:
        time.sleep(0.1 if number == 0 else 0)
        raise ValueError(f"of {number}")

    with pytest.raises(ValueError, match="of 0"):
        side_by_side(call, range(3), 3)


def test_one_at_a_time_runs_in_the_callers_thread() -> None:
    """As does a single call."""
    here = threading.get_ident()
    assert side_by_side(lambda _: threading.get_ident(), range(3), 1) == [here] * 3
    assert side_by_side(lambda _: threading.get_ident(), [1], 8) == [here]
