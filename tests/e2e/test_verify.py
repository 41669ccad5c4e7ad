"""`verify` compares what can be compared, names the rest, and ends as a run with such tables does."""

from collections.abc import Callable

import pytest

from lakeingest.commands.repair import repair_tables
from lakeingest.commands.verify import Verifications, compare_tables, verify
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, PreflightFailed, Retryable, SourceMoved, UnsupportedTable
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline of a table that is copied."""
    pipe = pipe_on(mysql_server)
    pipe.sql("CREATE TABLE good (id INT PRIMARY KEY, v INT)", "INSERT INTO good VALUES (1, 1), (2, 2)")
    return pipe


def found(pipe: Pipe) -> tuple[list[str], LakeIngestError]:
    """Which tables are found equal, and the error of another one."""
    with pytest.raises(LakeIngestError) as caught:
        verify(pipe.config, (), pipe.spark)
    result = caught.value.result
    assert isinstance(result, Verifications)
    assert not result.equal
    return [one.table.name for one in result if one.equal], caught.value


@pytest.mark.long("whole runs")
def test_a_table_without_a_key_is_named_and_the_others_are_compared(pipe: Pipe) -> None:
    """As a run does it."""
    pipe.sql("CREATE TABLE keyless (v INT)")
    with pytest.raises(PreflightFailed):
        pipe.run()
    names, error = found(pipe)
    assert (names, type(error)) == (["good"], UnsupportedTable)
    assert "keyless" in str(error)
    assert [one.equal for one in repair_tables(pipe.config, (), pipe.spark)] == [True]


@pytest.mark.formats("hudi")
@pytest.mark.long("Hudi's side of a rule that the case before shows")
def test_a_table_that_the_lake_cannot_have_is_not_for_later(pipe: Pipe) -> None:
    """A scheduler that tries again would try for ever."""
    pipe.sql("CREATE TABLE named (id INT PRIMARY KEY, `a b` INT)")
    with pytest.raises(PreflightFailed):
        pipe.run()
    names, error = found(pipe)
    assert (names, error.exit_code) == (["good"], 3)


def test_a_table_that_is_not_copied_yet_is_for_later(pipe: Pipe) -> None:
    """The next run copies it."""
    pipe.run()
    pipe.sql("CREATE TABLE fresh (id INT PRIMARY KEY)")
    names, error = found(pipe)
    assert (names, type(error)) == (["good"], Retryable)


@pytest.mark.long("whole runs")
def test_a_table_that_is_written_to_is_for_later(pipe: Pipe) -> None:
    """Only that one."""
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("INSERT INTO busy VALUES (1)")
    names, error = found(pipe)
    assert (names, type(error)) == (["good"], SourceMoved)
    assert "busy: not compared: SourceMoved" in compare_tables(pipe.config, (), pipe.spark).note


def test_an_error_of_all_tables_is_raised_at_once(pipe: Pipe) -> None:
    """There is nothing to be named."""
    pipe.run()
    gone = pipe.config.source.model_copy(update={"port": 1})
    with pytest.raises(LakeIngestError) as caught:
        compare_tables(pipe.config.model_copy(update={"source": gone}), (), pipe.spark)
    assert caught.value.result is None
