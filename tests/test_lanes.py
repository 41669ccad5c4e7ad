"""What a failure on a server that moves means: tests/plugins/lanes.py, tried with tests of its own."""

from collections.abc import Callable

import pytest

from lakeingest.demo.server import LocalServer
from tests.plugins.lanes import PINNED
from tests.servers.pinned import JARS

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.plugins import lanes

@pytest.fixture(scope="session")
def any_server(request):
    return request.param

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    lanes.judge(item, report)
    return report

def pytest_generate_tests(metafunc):
    lanes.parametrize(metafunc)
"""


def test_a_failure_on_a_newest_server_blocks_only_where_the_pinned_one_fails_too(pytester: pytest.Pytester) -> None:
    """It is named in the summary; one of a test for that server alone blocks, as one on a pinned server does."""
    pytester.makeini("[pytest]\nmarkers = newest: as ours")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest
        from lakeingest.demo.flavor import MARIADB_11_4, MARIADB_11_8

        @pytest.mark.newest
        def test_moved(any_server):
            assert any_server is not MARIADB_11_8, "it moved"

        @pytest.mark.newest
        def test_broken(any_server):
            assert any_server not in {MARIADB_11_4, MARIADB_11_8}

        @pytest.mark.parametrize("any_server", [MARIADB_11_8], ids=["MariaDB 11.8"], indirect=True)
        def test_of_the_newest_alone(any_server):
            assert False

        PAIRS = [(flavor, text) for flavor in (MARIADB_11_4, MARIADB_11_8) for text in "ab"]

        @pytest.mark.parametrize(("any_server", "text"), PAIRS, indirect=["any_server"])
        def test_with_pairs(any_server, text):
            assert (any_server, text) not in {(MARIADB_11_8, "a"), (MARIADB_11_8, "b"), (MARIADB_11_4, "b")}

        def test_everywhere(any_server):
            pass
        """
    )
    result = pytester.runpytest_inprocess("-ra", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3 + 2 + 1 + 3, failed=3 + 2, xfailed=1 + 1)
    answer = "XFAIL *::test_moved[[]MariaDB 11.8] - fails on the newest MariaDB 11.8, passes on the pinned*it moved*"
    result.stdout.fnmatch_lines([answer])
    failed = {line.split("::")[1].split(" -")[0] for line in result.outlines if line.startswith("FAILED ")}
    assert failed == {
        "test_broken[MariaDB 11.4]",
        "test_broken[MariaDB 11.8]",
        "test_of_the_newest_alone[MariaDB 11.8]",
        "test_with_pairs[any_server1-b]",
        "test_with_pairs[any_server3-b]",
    }


def test_a_failure_on_a_newest_server_does_not_block_where_another_lane_runs_the_pinned_one(
    pytester: pytest.Pytester,
) -> None:
    """The lane of the long tests has no result of the quick ones."""
    pytester.makeini("[pytest]\nmarkers =\n    newest: as ours\n    long: as ours")
    options = "from tests.plugins.slices import pytest_addoption, pytest_collection_modifyitems\n"
    pytester.makeconftest(options + CONFTEST)
    pytester.makepyfile(
        """
        import pytest
        from lakeingest.demo.flavor import MARIADB_11_8

        @pytest.mark.newest
        @pytest.mark.long("another server", only=("MariaDB 11.8",))
        def test_moved(any_server):
            assert any_server is not MARIADB_11_8, "it moved"
        """
    )
    result = pytester.runpytest_inprocess("-ra", "-p", "no:cacheprovider", "--take", "0/1")
    result.assert_outcomes(xfailed=1, deselected=3)


@pytest.mark.mysql
def test_the_pinned_server_has_its_version(server_of: Callable[..., LocalServer]) -> None:
    """Whatever Debian has by now."""
    assert server_of(PINNED).version.startswith(f"{JARS[PINNED][2]}-MariaDB")
