"""Faults at the commits of the embedded catalog."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

Act = Callable[[sqlite3.Connection], object]


def nothing(_: sqlite3.Connection) -> None:
    """No fault."""


@contextmanager
def at_commits(before: Act = nothing, after: Act = nothing) -> Iterator[None]:
    """Within the block, `before` is called before SQLite commits a change, and `after` when it has committed it.

    What they raise comes out of the commit.
    """

    class Connection(sqlite3.Connection):
        def commit(self) -> None:
            """Commit; there is nothing to commit where the connection has only read."""
            has_changed = self.in_transaction
            if has_changed:
                before(self)
            super().commit()
            if has_changed:
                after(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
        yield
