"""A state folder is of one pipeline and one server."""

import pytest

from lakeingest.errors import NotOurState, StateUnreadable, StorageFailed
from lakeingest.files.local import Local
from lakeingest.state import owner
from lakeingest.state.owner import StateOwner, assert_owner, claim, hand_over, owner_of

OURS = StateOwner("shop", "3e11fa47-71ca-11e1-9e33-c80aa9429562")
OTHER_NAME = StateOwner("stock", OURS.server)
OTHER_SERVER = StateOwner("shop", "00000000-0000-0000-0000-000000000001")


def test_a_folder_is_claimed_once(tmp_path: Local) -> None:
    """The first one keeps it, whoever comes later; it may claim it again."""
    assert owner_of(tmp_path) is None
    for _ in range(2):
        claim(tmp_path, OURS)
        assert owner_of(tmp_path) == OURS
    assert [file.name for file in tmp_path.iterdir()] == ["owner.json"]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (OTHER_NAME, "belongs to the pipeline shop; give this one a folder of its own .*state: ./state_stock"),
        (OTHER_SERVER, "belongs to copies of the server 3e11fa47.*, and the source is 00000000.*move the folder away"),
    ],
)
def test_the_folder_of_another_is_refused(tmp_path: Local, other: StateOwner, named: str) -> None:
    """By name, with the way out, and nothing is changed."""
    claim(tmp_path, OURS)
    with pytest.raises(NotOurState, match=named):
        claim(tmp_path, other)
    assert owner_of(tmp_path) == OURS


def test_a_folder_is_handed_over_to_a_server_that_takes_over(tmp_path: Local) -> None:
    """From then on the one before is refused."""
    claim(tmp_path, OURS)
    hand_over(tmp_path, OTHER_SERVER)
    claim(tmp_path, OTHER_SERVER)
    with pytest.raises(NotOurState):
        claim(tmp_path, OURS)


def test_a_folder_without_an_owner_can_be_claimed(tmp_path: Local) -> None:
    """It is new, or someone removed owner.json."""
    assert_owner(tmp_path, None, OURS)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null"])
def test_an_unreadable_owner_is_refused(tmp_path: Local, content: str) -> None:
    """It is named, and not taken for ours."""
    (tmp_path / "owner.json").write_text(content)
    with pytest.raises(StateUnreadable, match=r"owner\.json cannot be read"):
        claim(tmp_path, OURS)


def test_a_folder_that_cannot_be_written_needs_a_person(tmp_path: Local) -> None:
    """The state folder is named."""
    with pytest.raises(StorageFailed, match=r"owner\.json"):
        claim(tmp_path / "gone", OURS)


def test_the_layout_of_the_folder_is_kept_with_its_owner(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version with another layout says so when it claims the folder; the version before refuses it from then on."""
    claim(tmp_path, OURS)
    with monkeypatch.context() as later:
        later.setattr(owner, "LAYOUT", owner.LAYOUT + 1)
        assert owner_of(tmp_path) == OURS
        claim(tmp_path, OURS)
        assert owner_of(tmp_path) == OURS
    for reading in (owner_of, lambda folder: claim(folder, OURS)):
        with pytest.raises(StateUnreadable, match="of layout 2, this version reads 1: a newer version"):
            reading(tmp_path)


def test_a_folder_without_a_layout_is_of_the_first_one(tmp_path: Local) -> None:
    """Versions before wrote none."""
    (tmp_path / "owner.json").write_text('{"pipeline": "shop", "server": "there"}')
    assert owner_of(tmp_path) is not None
