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


def test_a_long_test_without_a_reason_is_refused(lane: pytest.Pytester) -> None:
    """In every lane."""
    lane.makepyfile("import pytest\n\n@pytest.mark.long\ndef test_why(): ...")
    result = lane.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the marker `long` needs a reason*"])
