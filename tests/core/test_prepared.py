"""What is prepared at a place of the binlog is known from the segments before it, and survives as JSON."""

import json

import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.schema import TableId

X, Y = Xid(b"\x00'x", b"\xff", 2**32 - 1), Xid(b"y", b"", 1)
TABLES = frozenset({TableId("shop.old", "orders"), TableId("shop", "a`b")})
HERE = Prepared(FilePosition("binlog.999999", 4), FilePosition("binlog.999999", 90), TABLES)
THERE = Prepared(FilePosition("binlog.1000000", 4), FilePosition("binlog.1000000", 5_000_000_000), None)


def test_what_is_prepared_is_known_until_it_ends() -> None:
    """A name can be used again; one that ended without having been prepared here was prepared before."""
    pending = Pending()
    pending.prepare(X, HERE)
    assert pending.end(X) == HERE
    assert pending == Pending()
    assert pending.end(X) is None
    assert pending == Pending({}, {X})
    pending.prepare(X, THERE)
    assert pending.after(Pending({X: HERE, Y: HERE}, {Y})) == Pending({Y: HERE, X: THERE}, {X, Y})


def test_it_survives_as_json() -> None:
    """What has ended is of no use to anyone later."""
    pending = Pending({X: HERE, Y: THERE}, {Y})
    assert Pending.from_json(json.loads(json.dumps(pending.to_json()))) == Pending({X: HERE, Y: THERE})
    assert Pending.from_json(Pending().to_json()) == Pending()
    for doc in ([1], [[["00", "00", 1], ["binlog.000001:4"], []]], [[["0", "00", 1], ["binlog.000001:4"] * 2, []]]):
        with pytest.raises((TypeError, ValueError)):
            Pending.from_json(doc)


def test_a_transaction_may_change_all_tables_if_nobody_knows_which() -> None:
    """Its change is a statement."""
    orders, other = TableId("shop.old", "orders"), TableId("shop", "other")
    assert HERE.changed({orders, other}) == {orders}
    assert THERE.changed([orders, other]) == {orders, other}
