"""`lakeingest init`: what it writes is a pipeline, and says nothing that it should not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pymysql
import pytest
from typer.testing import CliRunner

from lakeingest.cli import app
from lakeingest.commands import init as init_module
from lakeingest.commands.init import init
from lakeingest.config import Config, load_config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, ServerUnproven, SourceAway, UsageError
from lakeingest.exits import message
from tests.mysql.database import Db, database_on

PASSWORD = "p@ss:w/o#r?d%41"
TABLES = (
    "CREATE DATABASE init_shop",
    "CREATE TABLE init_shop.orders (id INT PRIMARY KEY)",
    "CREATE TABLE init_shop.items (id INT PRIMARY KEY)",
    "CREATE TABLE init_shop.tags (id INT, _lakeingest_at INT)",
    "CREATE TABLE init_shop.`odd*na.me` (id INT PRIMARY KEY, `two\nlines` INT)",
    "CREATE DATABASE `init.2`",
    "CREATE TABLE `init.2`.orders (id INT PRIMARY KEY)",
    "CREATE DATABASE `2026`",
    "CREATE TABLE `2026`.orders (id INT PRIMARY KEY)",
)


@dataclass(frozen=True)
class Account:
    """A user who sees the databases of this file only."""

    host: str
    port: int
    user: str = "init"

    def url(self, database: str = "", password: str | None = PASSWORD) -> str:
        """The source as `--from-source` takes it."""
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"mysql://{self.user}{secret}@{self.host}:{self.port}/{quote(database)}"


@pytest.fixture(scope="module")
def account(mysql_server: LocalServer) -> Iterator[Account]:
    """The user, and databases with tables that can be copied and tables that cannot."""
    server = mysql_server
    with (
        pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE USER init IDENTIFIED BY %s", (PASSWORD,))
        databases = [line.removeprefix("CREATE DATABASE ") for line in TABLES if line.startswith("CREATE DATABASE")]
        for statement in (*TABLES, *(f"GRANT SELECT ON {name}.* TO init" for name in databases)):
            cursor.execute(statement)
        yield Account(server.host, server.port)
        for statement in (*(f"DROP DATABASE {name}" for name in databases), "DROP USER init"):
            cursor.execute(statement)


def loaded(path: Path, text: str | None = None) -> Config:
    """The file as a run would read it, or another text in its place."""
    if text is not None:
        path = path.with_name("other.yml")
        path.write_text(text)
    return load_config(path, environment={"MYSQL_PASSWORD": PASSWORD})


def test_the_example_is_a_pipeline(tmp_path: Path) -> None:
    """Without a source it loads as it stands, its password from the environment."""
    path = tmp_path / "pipeline.yml"
    init(path, None, {})
    config = loaded(path)
    assert (config.name, config.source.host, config.tables.include) == ("shop", "db.example.com", ("shop.*",))
    assert config.source.password.get_secret_value() == PASSWORD


def test_keys_in_comments_are_the_defaults(tmp_path: Path) -> None:
    """Without its comment signs every such key is known, and the pipeline is the same."""
    path = tmp_path / "pipeline.yml"
    init(path, None, {})
    text, keys = re.subn(r"^( *)# (\w+: *[{\w\"].*)$", _key, path.read_text(), flags=re.MULTILINE)
    assert keys >= 5
    one, other = loaded(path), loaded(path, text)
    assert one.source.tls_mode == other.source.tls_mode
    without = {"source": {"tls"}, "tables": {"options"}}
    assert one.model_dump(exclude=without) == other.model_dump(exclude=without)
    table = TableId("shop", "orders")
    assert one.tables.of(table).model_dump() == other.tables.of(table).model_dump()


def _key(found: "re.Match[str]") -> str:
    known = {"tls", "server_ids", "max_connections", "options", "table", "spark", "submit", "metrics", "notify"}
    return f"{found[1]}{found[2]}" if found[2].partition(":")[0] in known else found[0]


def test_every_comment_is_one_line(tmp_path: Path) -> None:
    """No comment is continued in the next line, and none is wider than the file."""
    path = tmp_path / "pipeline.yml"
    init(path, None, {})
    assert max(map(len, path.read_text().splitlines())) <= 120


def test_no_comment_leads_to_a_file_that_only_the_repository_has(tmp_path: Path) -> None:
    """A user of the package has no pages; commands and keys are named instead."""
    path = tmp_path / "pipeline.yml"
    init(path, None, {})
    texts = [path.read_text(), *(text for text in vars(init_module).values() if isinstance(text, str))]
    assert [text for text in texts if re.search(r"docs/|infra/|\.md\b", text)] == []
    assert "`lakeingest unpack`" in texts[0]


def test_a_url_may_name_mariadb(tmp_path: Path) -> None:
    """It is asked as any other: here nobody answers."""
    with pytest.raises(SourceAway):
        init(tmp_path / "pipeline.yml", "mariadb://nobody@127.0.0.1:1/", {})


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    """A file and a folder of that name stay as they are, before any source is asked."""
    path = tmp_path / "pipeline.yml"
    path.write_text("mine")
    for taken in (path, tmp_path):
        with pytest.raises(UsageError, match="exists already"):
            init(taken, "mysql://nobody@127.0.0.1:1/", {})
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="does not exist; make it first"):
        init(tmp_path / "no" / "pipeline.yml", None, {})


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:secret@host/db",
        "host/db",
        "mysql://u:secret",
        "mysql://:secret@host",
        "mysql://u:secret@host:port",
        "mysql://u:secret@host:0",
        "mysql://u:secret@host:99999",
        "mysql://u:secret/2@host",
        "mysql://u:1#secret@host",
        "mysql://u:1?secret@host",
        "mysql://u:secret@host/db/table",
        "mysql://u:secret@host/db?ssl=1",
        "mysql://u:secret@host/db?tls.mode=secret",
        "mysql://u:secret@host/db?tls.pin=secret",
        "mysql://u:secret@[host/db",
    ],
)
def test_a_wrong_url_is_usage_and_not_shown(tmp_path: Path, url: str) -> None:
    """Any other form is refused with the right one; what stands in it may be a password."""
    with pytest.raises(UsageError, match="mysql://user:password@host:port/database") as raised:
        init(tmp_path / "pipeline.yml", url, {})
    assert "secret" not in message(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mysql
def test_a_source_is_written_with_its_databases(tmp_path: Path, account: Account) -> None:
    """All that the user sees is included; the password is a variable's, not the file's."""
    path = tmp_path / "pipeline.yml"
    written = init(path, account.url(), {})
    config = loaded(path)
    assert (config.source.host, config.source.port, config.source.user) == (account.host, account.port, account.user)
    assert config.tables.include == ("2026.*", r"re:`init\.2`\..*", "init_shop.*")
    copied = [TableId(database, "orders") for database in ("2026", "init.2", "init_shop")]
    assert config.tables.model_copy(update={"exclude": ()}).select(copied) == copied
    assert set(written.tables) == {*copied, TableId("init_shop", "items")}
    text = path.read_text()
    assert "${MYSQL_PASSWORD}" in text
    assert PASSWORD not in text
    assert quote(PASSWORD, safe="") not in text


@pytest.mark.mysql
def test_what_proves_the_source_is_written_as_the_url_has_it(tmp_path: Path, account: Account) -> None:
    """Without it the default of the host stands there in a comment."""
    pin = "sha256:" + "+/A9" * 10 + "AAA="
    with pytest.raises(ServerUnproven, match="find out why") as unproven:
        init(tmp_path / "pipeline.yml", f"{account.url()}?tls.pin={pin}", {})
    assert pin in str(unproven.value)
    init(tmp_path / "pipeline.yml", f"{account.url()}?tls.mode=required", {})
    assert loaded(tmp_path / "pipeline.yml").source.tls.mode == "required"
    init(tmp_path / "other.yml", account.url(), {})
    assert "\n  # tls: {mode: preferred}\n" in (tmp_path / "other.yml").read_text()


@pytest.mark.mysql
def test_the_statements_for_the_administrator_are_those_of_the_server(tmp_path: Path, account: Account) -> None:
    """For each database that is included, and the binlog; without a source, those of MySQL and of MariaDB."""
    init(tmp_path / "pipeline.yml", account.url("init_shop"), {})
    found = re.findall(r"#   (GRANT .*);  -- (\w+)$", (tmp_path / "pipeline.yml").read_text(), re.MULTILINE)
    assert found == [
        (r"GRANT SELECT ON `init\_shop`.* TO 'init'@'%'", "MySQL"),
        ("GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'init'@'%'", "MySQL"),
    ]
    init(tmp_path / "example.yml", None, {})
    assert len(re.findall(r"#   GRANT .*;  -- MariaDB$", (tmp_path / "example.yml").read_text(), re.MULTILINE)) == 2


@pytest.mark.mysql
def test_tables_that_cannot_be_copied_are_left_out_with_the_reason(tmp_path: Path, account: Account) -> None:
    """Each is excluded by name, whatever signs are in it, below a comment of one line that says why."""
    path = tmp_path / "pipeline.yml"
    written = init(path, account.url("init_shop"), {})
    assert {table.name for table in written.refused} == {"tags", "odd*na.me"}
    text = path.read_text()
    assert "    # column _lakeingest_at is int: names that begin with _lakeingest_ are reserved; it has neither" in text
    assert re.search(r"    # column two lines is int: its name cannot be printed.*\n    - \"re:", text)
    tables = [*written.tables, *written.refused, TableId("init_shop", "oddna.me")]
    assert set(loaded(path).tables.select(tables)) == {*written.tables, TableId("init_shop", "oddna.me")}


@pytest.mark.mysql
@pytest.mark.parametrize(("database", "name"), [("init_shop", "init_shop"), ("2026", "2026"), ("", "127-0-0-1")])
def test_the_name_is_the_databases_or_the_hosts(tmp_path: Path, account: Account, database: str, name: str) -> None:
    """Only the database of the URL is included, and the name is one that is accepted."""
    path = tmp_path / "pipeline.yml"
    init(path, account.url(database), {})
    config = loaded(path)
    assert config.name == name
    assert not database or config.tables.include == (f"{database}.*",)


@pytest.mark.mysql
def test_the_password_may_come_from_the_environment(tmp_path: Path, account: Account) -> None:
    """Where the URL has none; the server refuses a wrong one, and no file is left."""
    path = tmp_path / "pipeline.yml"
    with pytest.raises(OperatorNeeded, match=r"refuses user init.*no password was given; set MYSQL_PASSWORD"):
        init(path, account.url(password=None), {})
    with pytest.raises(OperatorNeeded, match=r"refuses user init.*correct source.user and source.password"):
        init(path, account.url(password="wrong"), {})
    with pytest.raises(OperatorNeeded, match="no table in nothing that"):
        init(path, account.url("nothing"), {})
    assert not path.exists()
    assert init(path, account.url("2026", None), {"MYSQL_PASSWORD": PASSWORD}).tables == (TableId("2026", "orders"),)


@pytest.mark.mysql
def test_tables_that_the_user_may_not_read_yet_are_written_without_partitions(
    tmp_path: Path, mysql_server: LocalServer
) -> None:
    """The file has the missing GRANTs, so it has to be there before they are."""
    with database_on(mysql_server) as db:
        db.run(
            *(f"CREATE TABLE {name} (id INT PRIMARY KEY, d DATE)" for name in ("a", "b")),
            f"CREATE USER sees_little IDENTIFIED BY '{PASSWORD}'",
            f"GRANT SELECT ON `{db.name}`.a TO sees_little",
            f"GRANT INSERT ON `{db.name}`.b TO sees_little",
        )
        account = Account(mysql_server.host, mysql_server.port, "sees_little")
        written = init(tmp_path / "pipeline.yml", account.url(db.name), {})
        db.run("DROP USER sees_little")
    assert [table.name for table in written.tables] == ["a", "b"]


@pytest.mark.mysql
def test_the_command_says_what_is_next(tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes ./pipeline.yml or the path that is given, and names the variable to set, unless it is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MYSQL_PASSWORD", raising=False)
    runner = CliRunner()
    said = runner.invoke(app, ["init"])
    assert said.output == (
        "pipeline.yml: an example; set source and tables in it\n"
        "next: export MYSQL_PASSWORD, then lakeingest check -c pipeline.yml\n"
    )
    assert loaded(tmp_path / "pipeline.yml").name == "shop"
    said = runner.invoke(app, ["init", "shop.yml", "--from-source", account.url("init_shop")])
    assert said.output.splitlines()[0] == "shop.yml: tables to copy: 2, left out: 2 (it says why)"
    assert isinstance(runner.invoke(app, ["init"]).exception, UsageError)


@pytest.mark.mysql
@pytest.mark.long("makes large tables")
def test_partitions_are_proposed_from_the_dates_of_large_tables(tmp_path: Path, any_server: LocalServer) -> None:
    """In comments, with the reason. Without the comment signs they are options of that table alone."""
    with database_on(any_server) as db:
        _fill(db)
        url = f"mysql://{quote(db.source.user)}@{db.source.host}:{db.source.port}/{db.name}"
        written = init(tmp_path / "pipeline.yml", url, {"MYSQL_PASSWORD": db.source.password.get_secret_value()})
        name = db.name
    text = (tmp_path / "pipeline.yml").read_text()
    assert {table.name: str(found.field) for table, found in written.partitions.items()} == {
        "event ☕.`2`": 'month(`when: "it", ☕`)',
        "visits": "month(day)",
    }
    assert not loaded(tmp_path / "pipeline.yml").tables.options
    assert re.search(
        r"#   # when: \"it\", ☕: about \d{3},\d{3} rows from 2024-01-01 to 2024-05-29, in 100 rows that were read:"
        r" 5 months with about \d{2},\d{3} rows each\n",
        text,
    )
    assert re.search(r"#   # day: about .* rows from 2024-01-01 to 2024-05-29, by its index: 5 months with", text)
    tables = loaded(tmp_path / "pipeline.yml", _in_force(text)).tables
    for table in (*written.tables, TableId(name, "event ☕x`2`")):
        proposed = written.partitions.get(table)
        assert tables.of(table).partition_by == ((str(proposed.field),) if proposed else ())
    assert max(map(len, text.splitlines())) <= 160


def _in_force(text: str) -> str:
    """The file with its proposals in force."""
    head, options, rest = text.partition("  # options:\n")
    proposals, target, tail = rest.partition("target:\n")
    assert options
    assert target
    return f"{head}  options:\n{re.sub('^  # ', '  ', proposals, flags=re.MULTILINE)}{target}{tail}"


def _fill(db: Db) -> None:
    """Tables with and without sound partitions; in the large ones a day has 2,000 rows."""
    day = "DATE('2024-01-01') + INTERVAL (id - 1) DIV 2000 DAY"
    event = "`event ☕.``2```"
    when = '`when: "it", ☕`'
    db.run(
        # columns that are no candidates come first: of the last change, with zero dates, and one with a default
        f"CREATE TABLE {event} (id INT PRIMARY KEY, changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"
        f" ON UPDATE CURRENT_TIMESTAMP, zero DATE, few DATE NOT NULL DEFAULT '1970-01-01', {when} DATETIME(6))",
        "CREATE TABLE numbers (id INT PRIMARY KEY)",
        "INSERT INTO numbers VALUES (1)",
        *(f"INSERT INTO numbers SELECT id + {2**power} FROM numbers" for power in range(18)),
        "INSERT INTO numbers SELECT id + 262144 FROM numbers WHERE id <= 37856",
        f"INSERT INTO {event} (id, changed, zero, {when}) SELECT id, {day}, '0000-00-00', {day} FROM numbers",
        # the index of another kind of key
        "CREATE TABLE visits (a CHAR(8), b INT, unindexed DATE, day DATE NOT NULL, PRIMARY KEY (a, b), KEY (day))",
        f"INSERT INTO visits SELECT 'a', id, {day}, {day} FROM numbers",
        "CREATE TABLE `hidden index` (a CHAR(8), b INT, c INT, day DATE, PRIMARY KEY (a, b), KEY (c, day))",
        f"INSERT INTO `hidden index` SELECT 'a', id, 1, {day} FROM numbers",
        "CREATE TABLE small (id INT PRIMARY KEY, day DATE NOT NULL, KEY (day))",
        f"INSERT INTO small SELECT id, {day} FROM numbers WHERE id <= 20000",
        f"ANALYZE TABLE {event}, numbers, visits, `hidden index`, small",
    )
