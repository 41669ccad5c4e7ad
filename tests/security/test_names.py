"""Names of databases and tables that lead elsewhere as a part of a path or of a URL: each is data, and stays below."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from lakeingest.commands.check import check
from lakeingest.config import Source, Target
from lakeingest.config.location import folder_of
from lakeingest.config.place import Place
from lakeingest.core.file_names import file_name, joined
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.lake.iceberg.tables.location import new_location
from lakeingest.mysql.connection import connect, query, table_name
from lakeingest.mysql.rights import grant_select, has_patterns
from tests.security.hostile import PLAIN, tables_on
from tests.servers.catalog_servers import TARGETS

NAMES = (
    ("..", "t1"),
    (".", "t2"),
    (".hid", "t"),
    ("a..b", "t"),
    ("a.b", "t"),
    ("of names", ".."),
    ("of names", "."),
    ("of names", "../../up"),
    ("of names", ".hoodie"),
    ("of names", "x.y"),
)
DOTS = {TableId(database, "t") for database in (".hid", "a..b")} | {TableId("..", "t1"), TableId(".", "t2")}
SLASH, HERE, ABOVE = (TableId("of names", name) for name in ("../../up", ".", ".."))
OF_HUDI = {TableId("of names", ".hoodie"), TableId("of names", "x.y")}
REFUSED = {
    "sql": DOTS,
    "rest": DOTS | {SLASH, HERE, ABOVE},
    "hudi": {TableId(database, name) for database, name in NAMES if database in {"..", ".", "of names"}},
}


@contextmanager
def lake(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """`target` of a pipeline.yml."""
    if kind == "rest":
        with TARGETS["rest"](folder) as target:
            yield target
    else:
        yield {"format": "hudi"} if kind == "hudi" else {}


@pytest.mark.long("takes seconds")
@pytest.mark.mysql
@pytest.mark.local("each test makes the lake that it needs")
@pytest.mark.parametrize("kind", REFUSED)
def test_a_name_that_a_lake_cannot_have_stops_its_table_alone(
    kind: str, tmp_path: Path, mysql_server: LocalServer
) -> None:
    """`check` names it, a run copies all others, and no file is outside of the warehouse and the state."""
    pipeline = tmp_path / "pipeline"
    pipeline.mkdir()
    (pipeline / "of another.txt").write_text("before")
    with tables_on(mysql_server, pipeline, *NAMES) as tables, lake(kind, tmp_path) as target:
        config = tables.config(**target)
        found = "; ".join(problem.finding or "" for problem in check(config).problems)
        published, reasons = tables.copied(config)
        again, _ = tables.copied(config)
    refused = REFUSED[kind]
    assert set(published) == set(tables.made) - refused == set(again)
    assert PLAIN in published
    for table in refused:
        assert f"{table}: " in found
        assert f"{table} is not ready" in reasons
    assert {path.name for path in pipeline.iterdir()} <= {"of another.txt", "state", "warehouse"}
    assert {path.name for path in tmp_path.iterdir()} <= {"pipeline", "warehouse", "rest.db", "rest.log"}


TEXTS = "a`b", "q'\"x", "semi;DROP TABLE t;-- x", "*/ -- #", "back\\slash", "%s%(x)s{0}${HOME}"


@pytest.mark.long("takes seconds")
@pytest.mark.mysql
@pytest.mark.local("makes the lake that it needs")
def test_names_and_texts_are_data_in_sql(tmp_path: Path, mysql_server: LocalServer) -> None:
    """Of tables, columns, comments, defaults and ENUM members: they are copied and followed, and nothing else happens.

    Hudi takes no such names.
    """
    with tables_on(mysql_server, tmp_path) as tables:
        names = {TableId(PLAIN.database, f"t{text}"): quote(f"c{text}") for text in TEXTS}
        for table, column in names.items():
            text = table.name.replace("\\", "\\\\").replace("'", "''")
            told = f"{column} VARCHAR(40) DEFAULT '{text}' COMMENT '{text}', e ENUM('{text}', 'b')"
            query(tables.connection, f"CREATE TABLE {table_name(table)} (id INT PRIMARY KEY, {told})")
            query(tables.connection, f"INSERT INTO {table_name(table)} (id, e) VALUES (1, 1), (2, 2)")
            tables.made.append(table)
        config = tables.config()
        published, reasons = tables.copied(config)
        assert published == dict.fromkeys([PLAIN, *names], 2), reasons
        for table, column in names.items():
            query(tables.connection, f"ALTER TABLE {table_name(table)} ADD {column[:-1]}2` INT DEFAULT 7")
            query(tables.connection, f"UPDATE {table_name(table)} SET {column} = 'x' WHERE id = 1")
            query(tables.connection, f"DELETE FROM {table_name(table)} WHERE id = 2")
        published, reasons = tables.copied(config)
        assert {table: published.get(table) for table in names} == dict.fromkeys(names, 1), reasons
        assert len(query(tables.connection, f"SHOW TABLES FROM {PLAIN.database}")) == len(names) + 1


@pytest.mark.mysql
def test_a_grant_that_is_proposed_is_of_one_database(any_server: LocalServer) -> None:
    """Whoever makes a database `%` gives the user no right on all of them."""
    assert_of_one_database(any_server)


@pytest.mark.mysql
def test_with_partial_revokes_it_is_of_that_database_too(mysql_server_with: Callable[..., LocalServer]) -> None:
    """There GRANT takes every sign of a name as it is."""
    assert_of_one_database(mysql_server_with(partial_revokes="ON"))


def assert_of_one_database(server: LocalServer) -> None:
    """What is proposed lets a user see the database that it is for, and no other."""
    names, other = ("%", "a_b", "back\\slash", "q`uote"), "axb"
    with tables_on(server, Path(), *((name, "t") for name in (*names, other))) as tables:
        account = "'of one'@'127.0.0.1'"
        for name in names:
            query(tables.connection, f"CREATE USER {account} IDENTIFIED BY 'secret'")
            try:
                patterns = has_patterns(tables.connection)
                query(tables.connection, grant_select(account, name, names_are_patterns=patterns))
                reader = Source(host=server.host, port=server.port, user="of one", password=SecretStr("secret"))
                with connect(reader) as connection:
                    shown = {database for (database,) in query(connection, "SHOW DATABASES")}
                    assert shown & {*names, other} == {name}
                    assert len(query(connection, f"SELECT * FROM {quote(name)}.t")) == 2
            finally:
                query(tables.connection, f"DROP USER {account}")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=64), st.sampled_from("dt"))
def test_whatever_the_name_its_files_are_below_their_folder(name: str, of: str) -> None:
    """Documents and pages of the state, folders of copies in the warehouse and by a pattern."""
    table = TableId(name, "t") if of == "d" else TableId("d", name)
    target = Target(warehouse=Place("/lake/house"))
    assert Path(os.path.normpath(f"/state/{file_name(name)}")).parent == Path("/state")
    places = [target.folder(table).written, new_location(target, table).removeprefix("file://")]
    places.append(folder_of("{database}/{table}", target.warehouse, table).written)
    for place in places:
        assert Path(os.path.normpath(place)).parents[1] == Path("/lake/house")


@pytest.mark.parametrize("part", ["", ".", "..", "../x", "a/b", "/", "a\0b"])
def test_a_part_of_a_path_that_could_lead_elsewhere_is_asserted_not_to_be_one(part: str) -> None:
    """Whatever encoded the name before."""
    with pytest.raises(ValueError, match="is no part of a path below /lake"):
        joined("/lake", "db", part)
    with pytest.raises(ValueError, match="is no part of a path below /lake"):
        Place("/lake") / part
