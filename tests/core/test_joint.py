"""Which tables are shown in one commit, and how many of them."""

from lakeingest.core.copies.joint import MOST, REFUSALS, Limit, first_batch, generations
from lakeingest.core.tables.schema import TableId

A, B, C, D, E = (TableId("shop", name) for name in "abcde")


def batches(tables: list[TableId], parents: dict[TableId, set[TableId]], most: int) -> list[list[TableId]]:
    """All batches, one after the other."""
    found = []
    while tables:
        found.append(first_batch(tables, lambda table: parents.get(table, ()), most))
        tables = [table for table in tables if table not in found[-1]]
    return found


def test_a_family_is_in_one_batch() -> None:
    """So that no reader sees a child and not yet its parent, even if there are more tables than a commit may have."""
    assert batches([A, B, C, D, E], {}, 2) == [[A, B], [C, D], [E]]
    assert batches([A, B, C, D, E], {D: {B}}, 2) == [[A, C], [B, D], [E]]
    assert batches([A, B, C, D, E], {E: {D}, D: {A}}, 3) == [[A, D, E], [B, C]]
    assert batches([A, B, C], {}, 5) == [[A, B, C]]


def test_a_family_that_is_too_large_is_cut_parents_first() -> None:
    """Then the order decides; a ring, a table that refers to itself, and parents that are not there cut nothing."""
    assert batches([A, B, C, D], {B: {A}, C: {B}, D: {C}}, 3) == [[A, B, C], [D]]
    assert batches([A, B, C], {A: {B, A}, B: {A}, C: {E}}, 2) == [[A, B], [C]]


def test_no_table_is_in_the_group_of_a_parent() -> None:
    """So that the tables of a group can be published side by side; one that refers to itself is no hindrance."""
    parents = {C: {A}, D: {C, E}, B: {B}}
    assert generations([A, B, C, D, E], lambda table: parents.get(table, ())) == [[A, B], [C], [D, E]]
    assert generations([], lambda _: ()) == []


def test_refusals_in_a_row_halve_the_commits_until_nobody_asks_any_more() -> None:
    """A server may refuse a long request, and take a shorter one."""
    limit = Limit()
    for _ in range(REFUSALS - 1):
        limit = limit.refused(100, for_good=False)
        assert limit.most == MOST
    limit = limit.refused(100, for_good=False)
    assert limit == Limit(50)
    asked = 0
    while not limit.ends_joint:
        limit, asked = limit.refused(limit.most, for_good=False), asked + 1
    assert asked == 5 * REFUSALS  # of 50, 25, 12, 6 and 3 tables


def test_a_commit_that_took_effect_ends_the_row() -> None:
    """Refusals now and then are of commits by others."""
    limit = Limit()
    for _ in range(10):
        limit = limit.refused(3, for_good=False).taken()
    assert limit == Limit()


def test_a_server_without_the_request_is_asked_once() -> None:
    """Its answer does not change during a run."""
    assert Limit().refused(100, for_good=True).ends_joint
