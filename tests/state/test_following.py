"""What following has cost, as the state folder keeps it."""

from pathlib import Path

from lakeingest.core.figures.bill import Bill
from lakeingest.core.figures.following import Followed
from lakeingest.files.local import Local
from lakeingest.state.following import NAME, read_following, store_following


def test_the_last_count_is_read_again(tmp_path: Path) -> None:
    """Without a count, and with a damaged one, nothing is known."""
    state = Local(tmp_path)
    assert read_following(state) is None
    followed = Followed(1.0, 100.0, 7, Bill(3.5, 0, 0, 0, ("pages",), 2, 9))
    store_following(state, followed)
    assert read_following(state) == followed
    for damaged in (b"{}", b"[", b'{"until": null}'):
        (state / NAME).put(damaged)
        assert read_following(state) is None
