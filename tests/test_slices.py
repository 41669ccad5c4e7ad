"""Which tests each lane takes. The lanes select from small tests that are written here."""

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.long("copies much")
def test_long(): ...

@pytest.mark.parametrize("lake_format", ["iceberg", "hudi"])
@pytest.mark.parametrize("kind", ["one", "two"])
@pytest.mark.long("many publishes", only=("hudi",))
def test_long_on_hudi(lake_format, kind): ...

def test_short(): ...
"""

TURNS = """
import pytest

SERVERS, KEYS = ["a", "b", "c"], range(20)

@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.long("each key on one server in turn", turn="server")
def test_keys(server, key): ...

@pytest.mark.parametrize(("server", "key"), [(server, key) for key in KEYS for server in SERVERS])
@pytest.mark.long("one of all", turn=("server", "key"))
@pytest.mark.long("never the first", only=("a",))
def test_one(server, key): ...
"""


@pytest.fixture
def lane(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a long test, a short one, and one that is long on Hudi."""
    pytester.makeini("[pytest]\nmarkers = long: as ours")
    pytester.makeconftest("from tests.plugins.slices import pytest_addoption, pytest_collection_modifyitems")
    pytester.makepyfile(TESTS)
    return pytester


@pytest.mark.parametrize(("take", "count"), [("all", 6), ("quick", 3), ("0/1", 3)])
def test_a_lane_takes_its_tests(lane: pytest.Pytester, take: str, count: int) -> None:
    """`only` names parameters with which a test is long."""
    lane.runpytest_inprocess("-p", "no:cacheprovider", "--take", take).assert_outcomes(
        passed=count, deselected=6 - count
    )


def test_the_slices_share_the_long_tests(lane: pytest.Pytester) -> None:
    """Each long test is in one of them."""
    passed = [
        lane.runpytest_inprocess("-p", "no:cacheprovider", "--take", f"{number}/3").parseoutcomes().get("passed", 0)
        for number in range(3)
    ]
    assert sum(passed) == 3


def test_servers_take_turns(lane: pytest.Pytester) -> None:
    """With `turn`, one test of each of the other parameters is quick: not always the same, and none that is long."""
    lane.makepyfile(TURNS)
    quick = lane.runpytest_inprocess("-v", "-p", "no:cacheprovider", "--take", "quick")
    quick.assert_outcomes(passed=20 + 1, deselected=40 + 59)
    keys = [line.split("[")[1].split("]")[0].split("-") for line in quick.outlines if "::test_keys[" in line]
    assert sorted(int(key) for key, _ in keys) == list(range(20))
    assert {server for _, server in keys} == {"a", "b", "c"}
    assert all("test_one[a-" not in line for line in quick.outlines)
    lane.runpytest_inprocess("-p", "no:cacheprovider", "--take", "0/1").assert_outcomes(
        passed=40 + 59, deselected=20 + 1
    )


def test_a_turn_of_what_is_no_parameter_is_refused(lane: pytest.Pytester) -> None:
    """In every lane."""
    lane.makepyfile("import pytest\n\n@pytest.mark.long('why', turn='server')\ndef test_why(): ...")
    result = lane.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*of which some are no parameters*"])


def test_a_long_test_without_a_reason_is_refused(lane: pytest.Pytester) -> None:
    """In every lane."""
    lane.makepyfile("import pytest\n\n@pytest.mark.long\ndef test_why(): ...")
    result = lane.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the marker `long` needs a reason*"])
