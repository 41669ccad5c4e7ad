"""`quality.quarantine` of pipeline.yml: how many rows may leave a copy."""

import pytest
from pydantic import ValidationError

from lakeingest.config.quality import Quality, Quarantine


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5%", 0.005), ("100%", 1.0), ("0%", 0.0)])
def test_a_share_is_a_number_with_a_percent_sign(text: str, share: float) -> None:
    """It is written as it was read."""
    quarantine = Quarantine.model_validate({"max_share": text})
    assert quarantine.max_share == share
    assert quarantine.model_dump()["max_share"] == text


@pytest.mark.parametrize("wrong", [{"max_share": 0.01}, {"max_share": "101%"}, {"max_share": "-1%"}, {"max_rows": 0}])
def test_other_limits_are_refused(wrong: dict[str, object]) -> None:
    """A number without a sign could be a share or a percentage."""
    with pytest.raises(ValidationError):
        Quarantine.model_validate(wrong)


def test_tables_stop_unless_a_quarantine_is_asked_for() -> None:
    """Then a thousand rows, or one of a hundred, may leave a copy."""
    assert Quality().on_failure == "stop"
    assert Quality(on_failure="quarantine").quarantine == Quarantine.model_validate(
        {"max_rows": 1_000, "max_share": "1%"}
    )
