"""Every command of the runbooks, run: each way out leads out of a real trouble, the others work on a sound pipeline."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeingest.commands.adopt import adopt
from lakeingest.commands.status import status
from lakeingest.config import CATALOG
from lakeingest.config.place import Place
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.config.tables import Tables
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    ApprovalNeeded,
    BinlogGone,
    ForeignWrite,
    GateFailed,
    LakeIngestError,
    LeaseHeld,
    NotOurCopy,
    PartitionsDiffer,
    PreflightFailed,
    SchemaChanged,
    StateUnreadable,
    UnsupportedEvent,
    UnsupportedValue,
)
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of
from tests.servers.stores import on_disk

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.local("what is pasted names folders"),
    pytest.mark.mysql,
    pytest.mark.spark,
]

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"(?ms)^ *```(?P<language>sh|sql|python)(?: exit=(?P<code>\d+))?\n(?P<text>.*?)^ *```")
WAY_OUT = "## Way out"
# What begins and ends most ways out. Each starts a Spark of its own, so that once is enough; then the test's own Spark
# does the same.
RUN = "lakeingest run\n"
HEALTHY = "lakeingest status\nlakeingest verify\n"


@dataclass(frozen=True)
class Block:
    """Commands that a reader pastes, and the exit code that they end with."""

    language: str
    text: str
    code: int


def blocks(runbook: str) -> dict[str, list[Block]]:
    """The blocks of a runbook by section, in order."""
    parts = re.split(r"^(?=## )", (ROOT / "infra" / "runbooks" / f"{runbook}.md").read_text(), flags=re.MULTILINE)
    return {part.partition("\n")[0]: [fenced(found) for found in FENCE.finditer(part)] for part in parts}


def fenced(found: re.Match[str]) -> Block:
    """A fence as a block, without the indent of a step, which a shell ignores but in a here-document."""
    text = found["text"] if "<<" in found["text"] else textwrap.dedent(found["text"])
    return Block(found["language"], text, int(found["code"] or 0))


@dataclass(frozen=True)
class Night:
    """The folder of a pipeline.yml: where an engineer at night stands."""

    folder: Path
    pipe: Pipe

    def paste(self, block: Block) -> str | None:
        """Do what the block says; None when it came out as it says, else what went wrong."""
        source = self.pipe.config.source
        names = {
            "MY_PIPELINE": self.pipe.config.name,
            "MY_DATABASE": self.pipe.database,
            "MY_TABLE": "orders",
            "MY_COLUMN": "d",
            "SOURCE_HOST": source.host,
            "SOURCE_PORT": str(source.port),
            "STATE_FOLDER": "state",
            "WAREHOUSE_FOLDER": str(self.pipe.config.target.warehouse),
        }
        text = re.sub("|".join(names), lambda found: names[found[0]], block.text)
        if block.language == "sql":
            self.pipe.sql(*filter(str.strip, text.split(";\n")))
            return None
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text] if block.language == "sh" else [sys.executable, "-c", text],
            cwd=self.folder,
            env=os.environ
            | {
                "MYSQL_PASSWORD": source.password.get_secret_value(),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                # many short processes: modules are compiled once, and the JVM does not optimise
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": str(self.folder.parent / "pycache"),
                "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        return None if done.returncode == block.code else f"{text}\n→ {done.returncode}: {done.stdout[-1500:]}"


@pytest.fixture
def place(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], tmp_path: Path) -> Night:
    """A pipeline of two tables that is not copied yet; on a server that may be maltreated."""
    pipe = pipe_on(mysql_server_with(server_id="93"))
    folder = on_disk(pipe.state).parent
    pipe.config = pipe.config.model_copy(update={"state": Place.of(folder / "state")})
    source, target = pipe.config.source, pipe.config.target
    doc = {
        "name": pipe.config.name,
        "source": {"host": source.host, "port": source.port, "user": source.user, "password": "${MYSQL_PASSWORD}"},
        "tables": {"include": list(pipe.config.tables.include)},
        "target": {"warehouse": str(target.warehouse)},
    }
    (folder / "pipeline.yml").write_text(json.dumps(doc))
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40), d DATE)",
        "INSERT INTO orders VALUES (1, 'a', '2026-01-01'), (2, 'b', NULL), (3, 'c', NULL)",
        "CREATE TABLE items (id INT PRIMARY KEY)",
        "INSERT INTO items VALUES (1), (2)",
    )
    return Night(folder, pipe)


def purge(pipe: Pipe) -> None:
    """The source drops what we have not read yet."""
    pipe.sql("FLUSH BINARY LOGS", "DELETE FROM orders WHERE id = 1", "FLUSH BINARY LOGS")
    pipe.purge()


def alter_unapproved(pipe: Pipe) -> None:
    """DDL waits for approval."""
    path = on_disk(pipe.state).parent / "pipeline.yml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": {"changes": "approve"}}))
    pipe.config = pipe.config.model_copy(update={"schema_changes": SchemaChanges(changes="approve")})
    pipe.sql("ALTER TABLE orders ADD c INT DEFAULT 5", "UPDATE orders SET c = 6 WHERE id = 2")


def ask_for_partitions(pipe: Pipe) -> None:
    """pipeline.yml asks for partitions that the copy does not have."""
    options = {f"{pipe.database}.orders": {"partition_by": ["year(d)"]}}
    path = on_disk(pipe.state).parent / "pipeline.yml"
    doc = json.loads(path.read_text())
    path.write_text(json.dumps(doc | {"tables": doc["tables"] | {"options": options}}))
    tables = Tables.model_validate({"include": pipe.config.tables.include, "options": options})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def truncate_spool(pipe: Pipe) -> None:
    """A crash of the machine has cut a file short."""
    path = on_disk(pipe.state / "spool" / "opened.json")
    os.truncate(path, path.stat().st_size // 2)


def change_columns(pipe: Pipe) -> None:
    """Someone adds a column, gives another one a name that they like better, and divides the table."""
    name = f"{CATALOG}.{pipe.database}.orders"
    for change in ("ADD COLUMN note string", "RENAME COLUMN v TO value", "ADD PARTITION FIELD id"):
        pipe.spark.sql(f"ALTER TABLE {name} {change}")


def miscount(pipe: Pipe) -> None:
    """Our progress says that there is one row more."""
    with catalog_of(pipe.config.target) as catalog:
        table = catalog.load_table(f"{pipe.database}.orders")
        newest = table.current_snapshot()
        assert newest is not None
        assert newest.summary is not None
        progress = json.loads(newest.summary["lakeingest.progress"] or "")
        marks = {"lakeingest.progress": json.dumps(progress | {"rows": progress["rows"] + 1})}
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=marks, branch="lakeingest").fast_append(),
        ):
            pass


def take_name(pipe: Pipe) -> None:
    """Someone else has a table of the name, and we have none."""
    name = f"{CATALOG}.{pipe.database}.orders"
    pipe.spark.sql(f"DROP TABLE {name}")
    pipe.spark.sql(f"CREATE TABLE {name} AS SELECT 7 AS id")


def change_unlogged(pipe: Pipe) -> None:
    """A change that the binlog does not tell of, so that no run notices."""
    pipe.unlogged("UPDATE orders SET v = 'x' WHERE id = 2")
    assert not pipe.verify("orders")["orders"].equal


HOLDER = """
import sys, time
from lakeingest.files.local import Local
from lakeingest.state.lease import held
with held(Local(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


@contextmanager
def lease_holder(pipe: Pipe) -> Iterator[None]:
    """Another process that is at work on the pipeline and does not end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, on_disk(pipe.state)], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield
            assert process.wait(20) != 0  # the way out has ended it
        finally:
            process.kill()


def on_source(*statements: str) -> Callable[[Pipe], None]:
    """A trouble that comes from statements on the source."""
    return lambda pipe: pipe.sql(*statements)


def write_a_row(pipe: Pipe) -> None:
    """Someone writes to the copy."""
    pipe.spark.sql(f"INSERT INTO {CATALOG}.{pipe.database}.orders VALUES (9, 'theirs', NULL)")


def take_over(pipe: Pipe) -> None:
    """Another pipeline, which is called alike, has the copy now."""
    other = pipe.config.model_copy(update={"state": pipe.config.state / "other"})
    adopt(other, [f"{pipe.database}.orders"], pipe.config.name)


Trouble = tuple[str, Callable[[Pipe], AbstractContextManager[None] | None], type[LakeIngestError] | None, str]
ZERO = ("SET sql_mode = ''", "UPDATE orders SET d = '0000-00-00' WHERE id = 2", "SET sql_mode = DEFAULT")
# The runbook, what happens after a first run, and what the next run says of it.
TROUBLES: dict[str, Trouble] = {
    "purged binlog": ("BinlogGone", purge, BinlogGone, "has purged"),
    "DDL": (
        "SchemaChanged",
        on_source("SET sql_log_bin = 0", "ALTER TABLE orders ADD c BINARY(3) NOT NULL", "SET sql_log_bin = 1"),
        SchemaChanged,
        "DDL or tables.options changed",
    ),
    "approval": ("ApprovalNeeded", alter_unapproved, ApprovalNeeded, "waits before DDL .* ADD c INT DEFAULT 5"),
    "row image": (
        "UnsupportedEvent",
        on_source("SET binlog_row_image = MINIMAL", "UPDATE orders SET v = 'x'", "SET binlog_row_image = FULL"),
        UnsupportedEvent,
        "row image not FULL",
    ),
    "zero date": ("UnsupportedValue", on_source(*ZERO, "DELETE FROM items"), UnsupportedValue, "column d"),
    "damaged spool": ("StateUnreadable", truncate_spool, StateUnreadable, "the spool in"),
    "foreign row": ("ForeignWrite", write_a_row, ForeignWrite, "`lakeingest rollback"),
    "changed columns": ("ForeignWrite", change_columns, ForeignWrite, "v was renamed value"),
    "other partitions": ("PartitionsDiffer", ask_for_partitions, PartitionsDiffer, "orders has no partitions"),
    "another pipeline's copy": ("NotOurCopy", take_over, NotOurCopy, "its copy belongs to the pipeline"),
    "name that is taken": ("NotOurTable", take_name, PreflightFailed, "is no copy of"),
    "rows that are not whole": ("GateFailed", miscount, GateFailed, "3 rows are staged, 4 were written"),
    "difference": ("VerificationFailed", change_unlogged, None, ""),
    "run that hangs": ("LeaseHeld", lease_holder, LeaseHeld, "another run"),
    "setting": ("PreflightFailed", on_source("SET GLOBAL binlog_row_image = MINIMAL"), PreflightFailed, "MINIMAL"),
}


def pasted_in_trouble(runbook: str) -> list[Block]:
    """The steps of the way out, and before them what has another exit code because of the trouble."""
    sections = blocks(runbook)
    others = [block for section, found in sections.items() if section != WAY_OUT for block in found if block.code]
    return [*others, *sections[WAY_OUT]]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.long(
    "repairs a table by several processes",
    only=(
        "difference",
        "purged binlog",
        "zero date",
        "name that is taken",
        "rows that are not whole",
        "changed columns",
        "other partitions",
        "foreign row",
        "damaged spool",
        "DDL",
        "row image",
        "approval",
    ),
)
@pytest.mark.long("copies a table by two pipelines", only=("another pipeline's copy",))
def test_the_way_out_leads_out(place: Night, trouble: str) -> None:
    """The next run says what the runbook is called for, each step can be pasted, and in the end source = target."""
    runbook, happens, error, said = TROUBLES[trouble]
    pipe = place.pipe
    pipe.run()
    with happens(pipe) or nullcontext():
        if error is not None:
            with pytest.raises(error, match=said):
                pipe.run()
        steps = pasted_in_trouble(runbook)
        assert steps[-1].text == HEALTHY
        for block in steps:
            if block.text == RUN and block.code:
                with pytest.raises(LakeIngestError) as raised:
                    pipe.run()
                assert raised.value.exit_code == block.code
            elif block.text == RUN:
                pipe.run()
            elif block.text == HEALTHY:
                assert {one.state for one in status(pipe.config)} == {"published"}
                pipe.assert_equal()
            else:
                assert (wrong := place.paste(block)) is None, wrong


@pytest.mark.long("starts a process for each command of the runbooks")
def test_every_other_command_can_be_pasted(place: Night) -> None:
    """What is not part of such a way out works on a sound pipeline, from its first run on."""
    in_trouble = {block for runbook, *_ in TROUBLES.values() for block in pasted_in_trouble(runbook)}
    found = {
        block
        for path in (ROOT / "infra" / "runbooks").glob("*.md")
        for section in blocks(path.stem).values()
        for block in section
    }
    run, healthy = Block("sh", RUN, 0), Block("sh", HEALTHY, 0)
    elsewhere = {block for block in found if block.text.startswith(("aws ", "curl "))}  # a local pipeline has no server
    others = sorted(found - in_trouble - elsewhere - {run, healthy}, key=lambda block: block.text)
    assert len(others) > 20
    wrong = [said for block in (run, *others, healthy) if (said := place.paste(block)) is not None]
    assert not wrong, "\n\n".join(wrong)
