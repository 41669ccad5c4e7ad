from lakeingest.core.tables.condition import Checked
from lakeingest.errors import BinlogGone, SourceAway


def test_a_condition_says_its_name_and_what_is_wrong() -> None:
    """One that is met is its name alone."""
    assert str(Checked("binlog", None)) == "binlog"
    assert str(Checked("binlog", "it is off; start the server with it")).startswith("binlog: it is off;")


def test_a_condition_names_the_runbook_of_its_errors() -> None:
    """If there is one for all of them; that it is fatal is no matter of the error."""
    away, gone = SourceAway("it is away"), BinlogGone("it is gone")
    assert Checked.failed("connection", away) == Checked("connection", "it is away", runbook="SourceAway")
    assert Checked.failed("spool", gone, gone).runbook == "BinlogGone"
    assert Checked.failed("spool", gone, away) == Checked("spool", "it is gone; it is away")
