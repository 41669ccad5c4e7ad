"""Which pipeline a copy belongs to."""

import pytest

from lakeingest.core.copies.ownership import Owner

SHOP = Owner("shop", "1f", "file://host/state")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Owner("shop", "1f", "file://host/state"), True),
        (Owner("shop", "1f", "s3://lake/state"), True),  # the folder was moved
        (Owner("other", "1f", "s3://lake/state"), True),  # and owner.json says whose it is
        (Owner("shop", "2e", "file://host/state"), True),  # the folder was lost
        (Owner("shop", "", "file://host/state"), True),
        (Owner("shop", "2e", "file://host/state2"), False),  # two pipelines may be called alike
        (Owner("other", "2e", "file://host/state"), False),
        (Owner("shop", "", "s3://lake/state"), False),
    ],
)
def test_a_pipeline_is_known_by_the_id_of_its_state_folder_or_by_name_and_place(other: Owner, *, same: bool) -> None:
    """A name alone is not enough, nor are two ids that are missing."""
    assert SHOP.is_same(other) is same
    assert other.is_same(SHOP) is same
    assert not Owner("a", "", "x").is_same(Owner("b", "", "y"))


def test_an_owner_is_read_back_and_something_else_is_nobody() -> None:
    """So what is damaged lets no pipeline write."""
    assert Owner.of_text(SHOP.to_text()) == SHOP
    assert str(SHOP) == "the pipeline shop with the state folder file://host/state"
    for text in ("", "[]", '{"pipeline": "shop"}', "null"):
        assert not Owner.of_text(text).is_same(SHOP)
