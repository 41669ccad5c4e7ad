"""What somebody who may write to the warehouse, or set properties of a table, can make of that."""

import io
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakeingest.config import CATALOG, Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ForeignWrite, OperatorNeeded
from lakeingest.lake.formats import open_rollbacks, open_target
from lakeingest.mysql.connection import query
from tests.security.hostile import PLAIN, tables_on

loaded: list[object] = []


def intrude(*given: object) -> None:
    """What a property of a table names as a class."""
    loaded.append(given)


def test_no_property_of_a_table_loads_code_or_leads_elsewhere(mysql_server: LocalServer, tmp_path: Path) -> None:
    """Neither a class for files or places, nor another store, nor another folder; the properties stay as they are."""
    elsewhere = tmp_path / "elsewhere"
    mine = f"{intrude.__module__}.{intrude.__name__}"
    places = dict.fromkeys(("data", "metadata", "object-storage", "folder-storage"), elsewhere.as_uri())
    others = {f"write.{name}.path": place for name, place in places.items()}
    others |= dict.fromkeys(("py-io-impl", "write.py-location-provider.impl"), mine)
    others |= {"s3.endpoint": "http://127.0.0.2:9", "write.object-storage.enabled": "true"}
    with tables_on(mysql_server, tmp_path) as tables:
        config = tables.config()
        assert tables.copied(config) == ({PLAIN: 2}, "")
        set_in_place(metadata_of(config), others)
        query(tables.connection, f"UPDATE {PLAIN} SET v = 'c' WHERE id = 2")
        assert tables.copied(config) == ({PLAIN: 2}, "")
    assert loaded == []
    assert not elsewhere.exists()
    after = json.loads(metadata_of(config).read_text())
    assert others.items() <= after["properties"].items()
    assert after["last-sequence-number"] > 2


DEEP = "[" * 5000  # Python gives up on it
CRAFTED = [
    {name: value}
    for name, values in {
        "lakeingest.owner": (DEEP, "5"),
        "lakeingest.expired": (DEEP, "[5]", '[[1, null, 1, "file:///etc/passwd"]]'),
        "lakeingest.location": ("", "file://[", "\0"),
        "lakeingest.state": ("x",),
        "lakeingest.given": (DEEP, "5"),
        "lakeingest.position": (DEEP,),
        "write.metadata.previous-versions-max": ("9" * 5000,),
        "gc.enabled": ("x",),
    }.items()
    for value in values
]


@pytest.mark.long("takes seconds")
def test_no_crafted_property_is_an_internal_error(mysql_server: LocalServer, tmp_path: Path) -> None:
    """At most its own table stops, and with a named error."""
    names = [("crafted", f"t{number:02d}") for number in range(len(CRAFTED))]
    with tables_on(mysql_server, tmp_path, *names) as tables:
        config = tables.config()
        assert len(tables.copied(config)[0]) == len(CRAFTED) + 1
        for (_, name), properties in zip(names, CRAFTED, strict=True):
            set_in_place(metadata_of(config, name), properties)
        for table in tables.made:
            query(tables.connection, f"UPDATE {table} SET v = 'c' WHERE id = 2")
        rows, why = tables.copied(config)
    assert rows[PLAIN] == 2
    stopped = {line.partition(":")[0] for line in why.splitlines()}
    assert stopped <= {f"crafted.{name}" for _, name in names}
    assert len(rows) + len(stopped) == len(CRAFTED) + 1


@pytest.mark.long("takes seconds")
def test_a_table_that_was_moved_into_the_folder_of_others_loses_them_no_file(
    mysql_server: LocalServer, tmp_path: Path
) -> None:
    """Neither where both the folder and our note of it were altered, nor by a rollback to what the note says."""
    victim = tmp_path / "victim"
    for name in ("data/precious.parquet", "metadata/notes.avro"):
        (victim / name).parent.mkdir(parents=True)
        (victim / name).write_text("precious")
        os.utime(victim / name, (1e9, 1e9))
    with tables_on(mysql_server, tmp_path) as tables:
        config = tables.config(history={"keep": "0s", "least": 1, "readers": "0s"})
        assert tables.copied(config) == ({PLAIN: 2}, "")
        set_in_place(metadata_of(config), {"lakeingest.location": victim.as_uri()})
        assert "changed its folder" in tables.copied(config)[1]
        with pytest.raises(ForeignWrite, match="cannot be rolled back"):
            open_rollbacks(config).found(PLAIN)
        set_in_place(metadata_of(config), {}, location=victim.as_uri())
        for number in range(4):
            query(tables.connection, f"UPDATE {PLAIN} SET v = '{number}' WHERE id = 2")
            assert tables.copied(config) == ({PLAIN: 2}, "")
        target = open_target(config)
        staged = target.recover(PLAIN)
        assert staged is not None
        target.maintain(staged)
        with pytest.raises(OperatorNeeded, match="no file is deleted there"):
            target.remove_leftovers(PLAIN, timedelta(0))
    assert (victim / "data/precious.parquet").read_text() == (victim / "metadata/notes.avro").read_text() == "precious"


OF_HUDI = [
    *(
        {f"hoodie.lakeingest.{name}": value}
        for name, value in (
            ("owner", DEEP),
            ("version", "x"),
            ("key", DEEP),
            ("key", "5"),
            ("buckets", "0"),
            ("progress", DEEP),
            ("record_key", '["id\\nhoodie.table.version=1"]'),
            ("record_key", '["\\\\q"]'),
        )
    ),
    {"path": "../../victim/x_0-0-0_20260101000000000.parquet"},
    {"path": "/etc/passwd"},
]


@pytest.mark.long("a dozen copies; lake/hudi/test_damage has a damaged commit in every run")
def test_no_crafted_commit_of_hudi_is_an_internal_error(mysql_server: LocalServer, tmp_path: Path) -> None:
    """At most its own table stops, and with a named error; no file of another folder is read."""
    names = [("crafted", f"t{number:02d}") for number in range(len(OF_HUDI))]
    with tables_on(mysql_server, tmp_path, *names) as tables:
        config = tables.config(format="hudi")
        assert len(tables.copied(config)[0]) == len(OF_HUDI) + 1
        folders = [config.target.warehouse.path / "crafted" / name for _, name in names]
        before = [(folder / ".hoodie" / "hoodie.properties").read_text() for folder in folders]
        for folder, changes in zip(folders, OF_HUDI, strict=True):
            craft(folder, changes)
        for table in tables.made:
            query(tables.connection, f"UPDATE {table} SET v = 'c' WHERE id = 2")
        rows, why = tables.copied(config)
    assert rows[PLAIN] == 2
    assert [(folder / ".hoodie" / "hoodie.properties").read_text() for folder in folders] == before
    assert not {TableId(*name) for name in names[-2:]} & rows.keys()
    assert "internal error" not in why


def craft(folder: Path, changes: dict[str, str]) -> None:
    """Change the last commit of a table of Hudi: its properties, or the path of the files that it wrote."""
    file = max((folder / ".hoodie" / "timeline").glob("*.commit"))
    reader = fastavro.reader(io.BytesIO(file.read_bytes()))
    commit: Any = next(iter(reader))
    commit["extraMetadata"] |= {name: value for name, value in changes.items() if name != "path"}
    for stat in commit["partitionToWriteStats"][""]:
        stat["path"] = changes.get("path", stat["path"])
    with file.open("wb") as out:
        fastavro.writer(out, reader.writer_schema, [commit])


def metadata_of(config: Config, name: str = PLAIN.name) -> Path:
    """The metadata.json of a table."""
    catalog = SqlCatalog(CATALOG, **config.target.pyiceberg_properties())
    with catalog.engine.connect() as connection:
        asked = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        [named] = connection.exec_driver_sql(asked, (name,)).scalars()
    catalog.engine.dispose()
    return Path(unquote(urlsplit(named).path))


def set_in_place(file: Path, properties: dict[str, str], **changes: object) -> None:
    """Set properties of a table, or change more, as whoever can write its metadata.json."""
    doc = json.loads(file.read_text())
    doc["properties"] |= properties
    file.write_text(json.dumps({**doc, **changes}))
