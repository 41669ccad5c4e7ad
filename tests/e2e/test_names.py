"""Names of tables that file systems do not take as they are: each table is copied, and no other one notices."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_group

from lakeingest.cli import app
from lakeingest.commands.status import status
from lakeingest.demo.server import LocalServer
from lakeingest.errors import StorageFailed
from lakeingest.files.file import delete_all
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.servers.accounts import COPIER, copier_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

LONG = "客户订单付款明细历史记录备份表二零二六年第一季度华东区域分公司", "é" * 64, "a" * 64
# all commands that take several tables, in an order in which each has something to do
COMMANDS = "plan", "run", "status", "verify", "pause", "resume", "resnapshot", "cancel", "maintain", "adopt"
LONG_FOR_ICEBERG = "★" * 45, "Накладные и счета за первый квартал"  # Hudi takes only letters, digits and few signs


@pytest.mark.any_format
@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_tables_with_long_names_are_copied(any_pipe: Pipe) -> None:
    """A character beyond ASCII takes up to nine bytes in the name of a file."""
    names = LONG if any_pipe.config.target.format == "hudi" else LONG + LONG_FOR_ICEBERG
    any_pipe.sql(*(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v INT)" for name in names))
    any_pipe.sql(*(f"INSERT INTO `{name}` VALUES (1, 1), (2, 2)" for name in names))
    any_pipe.run()
    any_pipe.sql(*(f"UPDATE `{name}` SET v = 3 WHERE id = 2" for name in names))
    any_pipe.sql(*(f"ALTER TABLE `{name}` ADD w INT DEFAULT 7" for name in names))
    any_pipe.run()
    for name in names:
        assert any_pipe.rows(name) == [(1, 1, 7), (2, 3, 7)]
    assert {table.table.name for table in status(any_pipe.config)} == set(names)


@pytest.mark.local("the catalog of a folder")
@pytest.mark.long("runs with a Spark of their own")
def test_a_database_whose_name_has_a_dot_and_a_blank_is_copied(tmp_path: Path, mysql_server: LocalServer) -> None:
    """PyIceberg takes the blanks beside the dots away."""
    job = Job(tmp_path / "job", mysql_server, "city library. ☕", target={"format": "iceberg"})
    job.folder.mkdir(parents=True)
    quoted = f"`{job.database}`"
    job.sql(f"CREATE DATABASE {quoted}", f"CREATE TABLE {quoted}.`my. books` (id INT PRIMARY KEY)")
    job.sql(f"INSERT INTO {quoted}.`my. books` VALUES (1), (2)")
    try:
        copier_of(mysql_server, quoted)
        source = {"host": mysql_server.host, "port": mysql_server.port, "user": COPIER, "password": "${JOB_PASSWORD}"}
        document = {"name": "odd", "source": source, "tables": {"include": [f"re:{re.escape(quoted)}.*"]}}
        place = {"target": {"warehouse": "warehouse"}}
        (job.folder / "pipeline.yml").write_text(json.dumps(document | place))
        for command in ("run", "run", "status", "verify"):
            code, said = job.call(command)
            assert code == 0, said
        assert "source = target" in said
    finally:
        job.sql(f"DROP DATABASE {quoted}")


@pytest.mark.long("whole runs")
@pytest.mark.local("puts a folder in the place of a document of the state")
@pytest.mark.formats
def test_a_document_of_one_table_that_cannot_be_written_stops_that_table(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """The others go on; once it can be written, the next run copies the table."""
    pipe = pipe_on(mysql_server)
    pipe.sql(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in "ab"))
    pipe.sql(*(f"INSERT INTO {name} VALUES (1)" for name in "ab"))
    taken = [pipe.state / folder / f"{pipe.database}.a.json" for folder in ("definitions", "stopped")]
    for file in taken:
        (file / "taken").make_folder()
    with pytest.raises(StorageFailed, match=r"a\.json"):
        pipe.run()
    assert pipe.rows("b") == [(1,)]
    for file in taken:
        delete_all([file])
    pipe.run()
    assert pipe.rows("a") == [(1,)]


@pytest.mark.long("a process for each command that takes tables")
def test_every_command_takes_names_as_sql_quotes_them(tmp_path: Path, mysql_server: LocalServer) -> None:
    """By backquotes and by double quotes. What `approve` answers is that the table waits for nothing."""
    group = get_group(app).commands.items()
    taking = {name for name, one in group if any(parameter.name in {"table", "tables"} for parameter in one.params)}
    assert taking == {*COMMANDS, "approve", "changelog", "profile", "rollback"}
    job = Job(tmp_path / "job", mysql_server, "e2e_quoted", target={"format": "iceberg"}).write()
    names = f"`{job.database}`.`my table`", f'"{job.database}"."a.b ""c"""'
    job.sql(
        f"USE {job.database}",
        *(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)" for name in ("my table", 'a.b "c"', "unnamed")),
        "INSERT INTO `my table` VALUES (1)",
    )
    try:
        for command in COMMANDS:
            code, said = job.call(command, *names)
            assert (code, "unnamed" in said) == (0, False), (command, said)
        for name in names:
            code, said = job.call("approve", name)
            assert (code, "waits before no DDL" in said) == (2, True), said
        assert job.call("changelog", names[0])[1].count('"+I"') == 1
        assert job.call("changelog", names[1]) == (0, "")
    finally:
        job.sql(f"DROP DATABASE {job.database}")
