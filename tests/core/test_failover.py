"""Where a position stands on another server, transaction by transaction."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakeingest.core.binlog.failover import Found, Logged, epoch_of, find, find_in_domain, is_related, newest
from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import DomainGtid, FilePosition, Gtid, GtidSet, Position
from lakeingest.errors import SourceDiverged, StateUnreadable

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fb58-71ca-11e1-9e33-c80aa9429563"
SAVED = Position(
    A,
    1,
    FilePosition("binlog.000007", 4711),
    GtidSet.parse(f"{A}:1-5"),
    History(last=Committed("binlog.000007", 4600, f"{A}:5", 500)),
)


def log(*gtids: str) -> list[Logged[Gtid]]:
    """Transactions of 100 bytes, each committed at 100 times its number."""
    named = [(uuid, int(number)) for uuid, _, number in (gtid.partition(":") for gtid in gtids)]
    return [
        Logged(Gtid(uuid, number), FilePosition("log.000001", 100 * place), 100 * number)
        for place, (uuid, number) in enumerate(named, 1)
    ]


def on_a(*numbers: int) -> list[str]:
    """Transactions of the first server."""
    return [f"{A}:{number}" for number in numbers]


@pytest.mark.parametrize(
    ("before", "gtids", "end", "errant"),
    [
        ("", on_a(1, 2, 3, 4, 5), 500, ""),
        ("", on_a(1, 2, 3, 4, 5, 6, 7), 500, ""),
        (f"{A}:1-3", [*on_a(4, 5), f"{B}:1"], 200, ""),
        ("", [*on_a(1, 2), f"{B}:1", *on_a(3, 4, 5), f"{B}:2"], 600, f"{B}:1"),
        (f"{A}:1-4,{B}:1-2", on_a(5), 100, f"{B}:1-2"),
    ],
    ids=["the end", "more follows", "the oldest are purged", "one is errant", "errant ones in an older file"],
)
def test_a_position_ends_with_its_last_transaction(before: str, gtids: Sequence[str], end: int, errant: str) -> None:
    """Transactions before it that the position does not have are errant; what follows is new."""
    found = find(SAVED, GtidSet.parse(before), log(*gtids))
    assert found == Found(FilePosition("log.000001", end), GtidSet.parse(errant))


def test_a_position_that_is_found_has_the_errant_transactions_too() -> None:
    """They are before its place."""
    errant = GtidSet.parse(f"{B}:1")
    found = Found(FilePosition("log.000001", 500), errant)
    position = found.position(SAVED, B, 2, None)
    assert position == Position(B, 2, found.end, GtidSet.parse(f"{A}:1-5,{B}:1"))
    assert found.position(replace(SAVED, gtids=None), B, 2, None).gtids is None


@pytest.mark.parametrize("history", [None, History(1)], ids=["unknown", "without a transaction"])
def test_a_position_that_names_no_transaction_is_not_proven(history: History | None) -> None:
    """Its set alone does not tell reused GTIDs."""
    with pytest.raises(SourceDiverged, match="that the last transaction of the position is"):
        find(replace(SAVED, history=history), GtidSet(), log(*on_a(1, 2, 3, 4, 5)))


def test_a_transaction_with_a_reused_gtid_is_another_one() -> None:
    """It was committed at another time."""
    other = [replace(one, committed_at=1) if one.gtid.number == 5 else one for one in log(*on_a(1, 2, 3, 4, 5))]
    with pytest.raises(SourceDiverged, match=f"{A}:5 is another transaction"):
        find(SAVED, GtidSet(), other)


@pytest.mark.parametrize("gtids", [on_a(1, 2, 3, 4), [f"{B}:1"]], ids=["the last is missing", "none is known"])
def test_a_position_whose_last_transaction_is_not_there_is_not_proven(gtids: Sequence[str]) -> None:
    """It may be in a purged file."""
    with pytest.raises(SourceDiverged, match=f"does not show that {A}:5"):
        find(SAVED, GtidSet(), log(*gtids))


def test_the_newest_file_is_asked_for_few_times() -> None:
    """None where it holds of none."""
    files, asked = [f"binlog.{number:06d}" for number in range(1000)], list[str]()

    def is_old(file: str) -> bool:
        asked.append(file)
        return file <= "binlog.000123"

    assert newest(files, is_old) == "binlog.000123"
    assert len(asked) < 12
    assert newest(files, lambda _: False) is None
    assert newest(files, lambda _: True) == files[-1]


def test_an_epoch_is_of_one_server() -> None:
    """It grows where another server answers, also one that was the source before."""
    assert epoch_of(A, []) == 1
    assert epoch_of(A, [(A, 1)]) == 1
    assert epoch_of(B, [(A, 1)]) == 2
    assert epoch_of(B, [(A, 1), (B, 2)]) == 2
    assert epoch_of(A, [(A, 1), (B, 2)]) == 3
    assert epoch_of(B, [(B, 2), (A, 2)]) == 3


def test_servers_with_a_common_transaction_are_of_one_history() -> None:
    """Without GTIDs nobody can tell."""
    assert is_related(SAVED, GtidSet.parse(f"{A}:1-3"))
    assert not is_related(SAVED, GtidSet.parse(f"{B}:1-3"))
    assert not is_related(SAVED, None)
    assert not is_related(replace(SAVED, gtids=None), GtidSet.parse(f"{A}:1-3"))


LAST = Committed("binlog.000007", 4600, "0-81-5", 5_000_000)


def domain_log(*gtids: str, late: int = 0) -> list[Logged[DomainGtid]]:
    """Transactions of MariaDB, of 100 bytes, each dated at its number, or so many seconds later."""
    named = [DomainGtid.parse(gtid) for gtid in gtids]
    return [
        Logged(gtid, FilePosition("log.000001", 100 * place), 1_000_000 * (gtid.number + late))
        for place, gtid in enumerate(named, 1)
    ]


@pytest.mark.parametrize("late", [0, -2], ids=["the second of its commit", "the second of its last statement"])
def test_a_transaction_of_mariadb_is_found_by_its_name(late: int) -> None:
    """Whichever servers wrote those before it."""
    assert find_in_domain(LAST, domain_log("0-80-4", "0-81-5", "0-82-6", late=late)).end.pos == 200


@pytest.mark.parametrize(
    "found",
    [
        domain_log("0-81-5", late=1),
        domain_log("0-81-4"),
        domain_log("0-82-5"),
        domain_log("0-82-4", "0-81-4", "0-81-5"),
        domain_log("0-82-3", "0-81-5"),
        domain_log("1-81-4", "0-81-5"),
        [],
    ],
    ids=["dated later", "missing", "of another server", "a number twice", "a gap", "another domain", "nothing"],
)
def test_a_transaction_of_mariadb_that_may_be_another_one_is_refused(found: Sequence[Logged[DomainGtid]]) -> None:
    """So is one after transactions of the new server alone."""
    with pytest.raises(SourceDiverged):
        find_in_domain(LAST, found)


@pytest.mark.parametrize("text", ["", "0-1", "0-1-x", "3e11fa47-71ca-11e1-9e33-c80aa9429562:5"])
def test_what_is_no_gtid_of_mariadb_is_refused(text: str) -> None:
    """By name."""
    with pytest.raises(StateUnreadable, match="not a GTID of MariaDB"):
        DomainGtid.parse(text)
