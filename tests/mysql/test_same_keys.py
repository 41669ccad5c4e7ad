"""Keys that are two in MySQL and would be one in the lake: refused by name on both paths, and no others are."""

from collections.abc import Callable

import pytest

from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedTable, UnsupportedValue
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from tests.mysql.database import EPOCH, Db, database_on

pytestmark = pytest.mark.mysql

UNION, SECOND = b"\x81\xbe", b"\x87\x9c"  # one character, and two codes of cp932


@pytest.mark.parametrize("definition", ["VARCHAR(9)", "CHAR(9)", "VARCHAR(9) COLLATE cp932_bin"])
@pytest.mark.parametrize("wire", ["", "reference"])
@pytest.mark.long("each type on one server in turn", turn="any_server")
def test_a_second_code_of_a_character_is_refused_in_a_key(
    any_server: LocalServer, monkeypatch: pytest.MonkeyPatch, definition: str, wire: str
) -> None:
    """MySQL has both rows. The usual code is copied, and either is in a column that is no key."""
    definition = definition.replace(")", ") CHARACTER SET cp932", 1)
    with database_on(any_server) as db:
        schema = db.table("t", f"k {definition} PRIMARY KEY, v {definition}")
        whole = Chunk(schema.table, KeyRange())

        def read(binlog: Callable[[], list[str]]) -> list[list[str]]:
            uuid = server_state(db.connection).uuid
            chunk = read_chunk(db.source, schema, whole, uuid, EPOCH)
            return [sorted(chunk.rows["k"].to_pylist()), binlog()]

        def logged(*values: str) -> Callable[[], list[str]]:
            start = db.here()
            db.run(f"INSERT INTO t VALUES {', '.join(values)}")
            return lambda: sorted(db.read(db.segment(start), schema).tables[schema.table]["k"].to_pylist())

        usual = logged(f"(x'{UNION.hex()}', x'{SECOND.hex()}')", "('a', 'b')")
        if not wire:
            assert read(usual) == [["a", "\u222a"]] * 2
        second = logged(f"(x'61{SECOND.hex()}', 'c')")
        monkeypatch.setenv("LAKEINGEST_WIRE", wire)
        refused = r"column k .*cp932: 0x61879c;" if not wire else "reference cannot read it exactly|MariaDB"
        with pytest.raises(UnsupportedValue, match=refused):
            read(list)
        with pytest.raises(Exception, match=refused):
            second()


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("definition", ["ENUM('', 'a')", "SET('a', '')"])
def test_a_key_with_an_empty_member_is_refused(db: Db, definition: str, declared: bool) -> None:  # noqa: FBT001
    """The empty member and number 0, MySQL's invalid value, have the same text."""
    columns = f"k {definition} NOT NULL, v INT NOT NULL, PRIMARY KEY (k{', v' * declared})"
    with pytest.raises(
        UnsupportedTable, match=r"key column k is .*two of its values are the same text.*tables\.exclude"
    ):
        db.table("t", columns)
    db.run("DROP TABLE t")
    schema = db.table("t", f"{columns}, UNIQUE (v)")
    assert schema.key == ("v",)
