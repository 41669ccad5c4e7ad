from lakeingest.core.condition import Checked


def test_a_condition_says_its_name_and_what_is_wrong() -> None:
    """One that is met is its name alone."""
    assert str(Checked("binlog", None)) == "binlog"
    assert str(Checked("binlog", "it is off; start the server with it")).startswith("binlog: it is off;")
