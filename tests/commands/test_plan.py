"""`plan`: what it says is what a run would do."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakeingest.cli import app
from lakeingest.commands.plan import CopyPlan, Plans, TablePlan, plan
from lakeingest.config import Config, parse_config
from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.progress import Progress
from lakeingest.core.figures.bill import cpu_of_rows, dollars
from lakeingest.core.figures.following import bound_of
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.splits import Split
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UsageError
from lakeingest.lake.formats import open_target
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.source import Source
from lakeingest.pipeline.copying.planner import CHUNKS_PER_SLOT, Planner
from tests.mysql.database import Db, database_on
from tests.mysql.preflight.test_preflight import globally, user_on

pytestmark = pytest.mark.mysql

START = Place(1, 1, 4)
COUNT = "WITH RECURSIVE s AS (SELECT 0 n UNION ALL SELECT n + 1 FROM s WHERE n < 99) SELECT"
TABLES = {
    "even": ("id INT PRIMARY KEY, v INT", f"{COUNT} n, n FROM s"),
    "gappy": ("id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(9)", f"{COUNT} n * 1000, n FROM s"),
    "composite": ("a INT, b INT, PRIMARY KEY (a, b)", f"{COUNT} n DIV 10, n MOD 10 FROM s"),
}


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def config(db: Db, tmp_path: Path) -> Config:
    """A pipeline on it: chunks of 10 rows, one at a time."""
    return config_of(db, tmp_path)


def config_of(db: Db, folder: Path) -> Config:
    """The pipeline's file, and what it says."""
    password = db.source.password.get_secret_value()
    account = {"host": db.source.host, "port": db.source.port, "user": db.source.user, "password": password}
    options = {"*.*": {"chunk_rows": 10}}
    doc = {
        "name": "plan",
        "source": account | {"max_connections": 3},
        "tables": {"include": [f"{db.name}.*"], "options": options},
    }
    (folder / "pipeline.yml").write_text(json.dumps(doc))
    return parse_config(doc, folder, {})


def filled(db: Db, name: str) -> TableId:
    """One of TABLES with its 100 rows; the server's estimates are fresh."""
    columns, rows = TABLES[name]
    db.run(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} {rows}", f"ANALYZE TABLE {name}")
    return TableId(db.name, name)


def planned(config: Config) -> TablePlan:
    """The plan of the only table."""
    [answer] = plan(config)
    return answer


def copy_of(answer: TablePlan) -> CopyPlan:
    """What is to be copied."""
    assert answer.reasons == ()
    assert answer.copy is not None
    return answer.copy


def begun(config: Config, db: Db, name: str, *uppers: Key | None) -> None:
    """A copy with a split up to each key, 10 rows each."""
    target, schema = open_target(config), read_schema(db.connection, TableId(db.name, name))
    progress = Progress(schema.table, schema.fingerprint, "a", 1, START).created()
    staged = target.create(schema, progress)
    lower = None
    for upper in uppers:
        split = Split(KeyRange(lower, upper), START, Place(1, 1, 10))
        staged = target.commit_wave(staged, [], staged.progress.wave_committed((split,), 10))
        lower = upper


@pytest.mark.parametrize(
    ("name", "key", "path"),
    [
        ("even", ("id",), "integer key, even: cut by arithmetic"),
        ("gappy", ("id",), "integer key, gappy or without rows: the server finds boundaries"),
        ("composite", ("a", "b"), "composite key: the server finds boundaries"),
    ],
)
def test_the_chunks_are_those_that_a_run_would_cut(
    db: Db, config: Config, tmp_path: Path, name: str, key: tuple[str, ...], path: str
) -> None:
    """Rows, chunks and waves of each key path; the time is that of one chunk for each; nothing is left behind."""
    table = filled(db, name)
    answer = planned(config)
    copy = copy_of(answer)
    assert (answer.table, answer.target, answer.state) == (table, f"lake.{db.name}.{name}", "new")
    assert (answer.key, answer.key_path) == (key, path)
    assert (copy.rows, copy.chunk_rows, copy.at_once) == (100, 10, 1)
    assert copy.bytes > 0
    planner, waves = (
        Planner(Source(db.source, db.connection), read_schema(db.connection, table), TableOptions(chunk_rows=10), 1),
        0,
    )
    chunks, lower = 0, None
    while not chunks or lower is not None:
        wave = planner.next_wave(lower)
        chunks, waves, lower = chunks + len(wave), waves + 1, wave[-1].range.upper
    assert (copy.chunks, copy.waves) == (chunks, waves) == (10, math.ceil(10 / CHUNKS_PER_SLOT))
    assert 0 < copy.seconds < 60
    assert copy.cpu_seconds == cpu_of_rows(100) > 0
    assert copy.dollars == dollars(copy.cpu_seconds)
    assert answer.retention_seconds is not None
    assert answer.margin_seconds == answer.retention_seconds - copy.seconds
    assert [one.name for one in tmp_path.iterdir()] == ["pipeline.yml"]


def test_an_empty_table_is_one_chunk(db: Db, config: Config) -> None:
    """Without bounds: a row that comes meanwhile is in it."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY)")
    copy = copy_of(planned(config))
    assert (copy.rows, copy.chunks, copy.waves) == (0, 1, 1)
    assert 0 < copy.seconds < 60


def test_each_type_is_planned_and_none_is_lossy(db: Db, config: Config) -> None:
    """As MySQL has it, and as the lake will."""
    db.run("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, d DECIMAL(9,2), at TIMESTAMP(3), v VARCHAR(9))")
    answer = planned(config)
    assert [(one.name, one.source_type, one.lake_type) for one in answer.columns] == [
        ("id", "bigint unsigned", "decimal(20, 0)"),
        ("d", "decimal(9,2)", "decimal(9, 2)"),
        ("at", "timestamp(3)", "timestamptz"),
        ("v", "varchar(9)", "string"),
    ]
    assert answer.lossy == ()


def test_a_table_that_cannot_be_copied_is_listed_with_its_reasons(db: Db, config: Config) -> None:
    """The others are planned all the same; a value that has no exact place is seen where the first chunk has it."""
    filled(db, "even")
    db.run(
        "CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT, _lakeingest_t INT)",
        "CREATE TABLE b (id VARCHAR(5))",
        "CREATE TABLE zero (id INT PRIMARY KEY, d DATE)",
        "INSERT INTO zero VALUES (1, '0000-00-00')",
    )
    plans = {one.table.name: one for one in plan(config)}
    assert plans.keys() == {"a", "b", "even", "zero"}
    assert copy_of(plans["even"]).chunks == 10
    for name, reason in {"a": "_lakeingest_j is int", "b": "neither a primary key", "zero": "'0000-00-00'"}.items():
        assert reason in " ".join(plans[name].reasons)
        assert plans[name].copy is None


def test_a_table_that_may_not_be_read_is_listed_too(db: Db, config: Config) -> None:
    """What the server refuses for one table does not stop the plan."""
    filled(db, "even")
    db.run("CREATE TABLE closed (id INT PRIMARY KEY)")
    with user_on(db, "REPLICATION CLIENT, REPLICATION SLAVE"):
        db.run("GRANT SELECT ON even TO 'reader'@'%'", "GRANT INSERT ON closed TO 'reader'@'%'")
        account = {"user": "reader", "password": "p"}
        source = type(config.source).model_validate(config.source.model_dump() | account)
        plans = {one.table.name: one for one in plan(config.model_copy(update={"source": source}))}
    assert copy_of(plans["even"]).chunks == 10
    assert "refuses user reader" in plans["closed"].reasons[0]


def test_a_copy_that_was_begun_goes_on(db: Db, config: Config) -> None:
    """Only what is left is planned, from the key that it stands at."""
    filled(db, "even")
    begun(config, db, "even", (10,), (20,), (30,))
    answer = planned(config)
    copy = copy_of(answer)
    assert (answer.state, copy.rows, copy.chunks, copy.waves) == ("goes on", 70, 7, 2)


def test_a_complete_copy_has_no_chunks_left(db: Db, config: Config) -> None:
    """The binlog is all that a run reads."""
    filled(db, "gappy")
    begun(config, db, "gappy", (10,), None)
    answer = planned(config)
    copy = copy_of(answer)
    assert (answer.state, copy.rows, copy.chunks, copy.waves, copy.seconds) == ("goes on", 0, 0, 0, 0.0)
    assert answer.margin_seconds == answer.retention_seconds


@pytest.mark.parametrize(
    ("made_for", "named", "reason"),
    [("ven", "{database}.e{table}", "is no copy of"), ("even", "{database}.{table}", "changed its definition")],
)
def test_what_stands_in_the_way_in_the_lake_is_a_reason(
    db: Db, config: Config, made_for: str, named: str, reason: str
) -> None:
    """A name that is taken, and a copy of another definition."""
    table = filled(db, "even")
    schema = read_schema(db.connection, table)
    theirs = replace(schema, table=TableId(db.name, made_for), columns=schema.columns[:1])
    settings = config.target.model_copy(update={"table": named})
    progress = Progress(theirs.table, theirs.fingerprint, "a", 1, START)
    open_target(config.model_copy(update={"target": settings})).create(theirs, progress.created())
    assert reason in " ".join(planned(config).reasons)


def test_a_binlog_that_is_kept_for_good_has_no_margin(
    mysql_server_with: Callable[..., LocalServer], tmp_path: Path
) -> None:
    """None is without limit."""
    with database_on(mysql_server_with(server_id="58")) as db:
        filled(db, "even")
        config = config_of(db, tmp_path)
        with globally(db.connection, binlog_expire_logs_seconds="0"):
            answer = planned(config)
        assert (answer.retention_seconds, answer.margin_seconds) == (None, None)


def test_only_the_tables_that_were_asked_for_are_planned(db: Db, config: Config) -> None:
    """Another name is a usage error."""
    filled(db, "even")
    filled(db, "gappy")
    assert [one.table.name for one in plan(config, [f"{db.name}.gappy"])] == ["gappy"]
    with pytest.raises(UsageError, match="nothere"):
        plan(config, [f"{db.name}.nothere"])


def test_the_command_prints_text_or_json(
    db: Db, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure says that it is an estimate; a refused table is no error of the command."""
    filled(db, "even")
    db.run("CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT)")
    path = str(tmp_path / "pipeline.yml")
    assert app(["plan", "-c", path], standalone_mode=False) in {0, None}
    text = capsys.readouterr().out
    for part in (
        f"{db.name}.a → lake.{db.name}.a: cannot be copied",
        "column _lakeingest_j is int",
        f"{db.name}.even → lake.{db.name}.even: new",
        "id: integer key, even: cut by arithmetic",
        "about 10 of 10 rows, in 3 waves",
        "an estimate from one chunk, 1 at a time",
        "id int → int, v int → int",
        "lossy      none",
    ):
        assert part in text
    assert app(["plan", f"{db.name}.even", "-c", path, "--json"], standalone_mode=False) in {0, None}
    [answer] = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["lossy"], answer["copy"]["chunks"]) == ("new", [], 10)


def test_following_is_bounded_by_its_pace(db: Db, config: Config) -> None:
    """For all tables of the plan together; each of them, the notes and the JSON document have it."""
    for name in ("even", "gappy"):
        db.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    slow = config.target.model_copy(update={"publish_every": timedelta(minutes=5)})
    plans = plan(config.model_copy(update={"target": slow}))
    assert plans.following == bound_of(300, 2, knows_files=True)
    assert [one.following for one in plans] == [plans.following] * 2
    assert plans.following.publishes == 288
    assert plans.notes[-1] == str(plans.following)
    totals = r"in all: 2 tables; about 0 rows and [\d,]+ bytes to copy, in about [\d.]+ seconds; at most \d+ conn"
    assert re.match(totals, plans.notes[1])
    assert plan(config).following == bound_of(None, 2, knows_files=True)


def test_the_largest_table_is_named_whatever_is_left_to_copy(config: Config, db: Db) -> None:
    """Of those that can be copied; and its columns are a report."""
    for name, (columns, rows) in TABLES.items():
        few = "" if name == "gappy" else " LIMIT 5"
        db.run(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} {rows}{few}", f"ANALYZE TABLE {name}")
    plans = plan(config)
    assert plans.largest is not None
    assert plans.largest.table.name == "gappy"
    assert plans.largest.copy is not None
    assert plans.largest.copy.all_rows == 100
    assert [row[0] for row in plans.largest.types.cells()] == ["id", "v"]
    assert Plans(()).largest is None
