"""The owner of the lease is killed between any two writes to the state folder: the next owner makes it right.

What is killed is a process of its own, by SIGKILL, before and after its first write, its second one, and so on.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakeingest.commands.signal import ask
from lakeingest.config import Config
from lakeingest.core.copies.signals import Action, State, agenda
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import state_of
from lakeingest.state.lease import is_held
from lakeingest.state.signals import SignalFolder
from tests.e2e.pipe import Pipe
from tests.servers import lakes

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

# Kills itself before the given write of a document or of a line, or after it.
SERVE = """
import os, signal, sys
from pathlib import Path
from lakeingest.config import parse_config
from lakeingest.pipeline.signals.without_run import serve_without_run
from lakeingest.state import store

folder, text, number, after = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
count = 0

def dying(write):
    def wrapped(path, doc):
        global count
        if "lease" in path.name:
            return write(path, doc)
        count += 1
        if count == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, doc)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
    return wrapped

store.replace, store.append = dying(store.replace), dying(store.append)
import json
serve_without_run(parse_config(json.loads(text), folder, {}))
"""


def document(pipe: Pipe) -> str:
    """The pipeline as another process reads it."""
    source, config = pipe.config.source, pipe.config
    password = source.password.get_secret_value()
    return json.dumps(
        {
            "name": config.name,
            "source": {"host": source.host, "port": source.port, "user": source.user, "password": password},
            "tables": {"include": [f"{pipe.database}.*"]},
            "target": {
                "format": config.target.format,
                "warehouse": str(config.target.warehouse),
                **lakes.target_of(config.target.format),
            },
            "state": str(config.state),
        }
    )


def settled_but_killed(pipe: Pipe, folder: Path, number: int, when: str) -> bool:
    """Whether the process was killed at that write; False when it had fewer."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", SERVE, str(folder), document(pipe), str(number), when]
    code = subprocess.run(command, env=environment, check=False, timeout=60).returncode
    assert code in {0, -signal.SIGKILL}
    return code != 0


def paused(config: Config, tables: Sequence[TableId]) -> list[str]:
    """The names of the tables that are paused now, by what is stored."""
    signals = [one.signal for one in SignalFolder(state_of(config)).read()]
    return sorted(table.name for table in agenda(signals, tables, {}, {}).paused)


@pytest.mark.long("starts many processes")
def test_signals_are_carried_out_once_whenever_their_owner_is_killed(pipe: Pipe, tmp_path: Path) -> None:
    """Pause, resume and cancel, killed before and after each write: all end as if nothing had happened."""
    for table in ("a", "b", "c"):
        pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    tables = [TableId(pipe.database, name) for name in "abc"]
    kills = 0
    for when in ("before", "after"):
        number = 0
        while True:
            number += 1
            ask(pipe.config, "resume", wait=False)
            ask(pipe.config, "pause", [str(tables[0]), str(tables[1])], wait=False)
            ask(pipe.config, "resume", [str(tables[1])], wait=False)
            was_killed = settled_but_killed(pipe, tmp_path, number, when)
            kills += was_killed
            assert paused(pipe.config, tables) == ["a"]  # the order is that of the numbers, whatever is written down
            assert not settled_but_killed(pipe, tmp_path, 10**6, when)
            assert {one.signal.state for one in SignalFolder(pipe.state).read()} == {State.DONE}
            assert paused(pipe.config, tables) == ["a"]
            if not was_killed:
                break
    assert kills == 12
    lines = [*map(files.parsed, (pipe.state / "audit.jsonl").lines())]
    asked = [line["number"] for line in lines if line["event"] == "asked"]
    assert asked == sorted(set(asked))
    assert {line["number"] for line in lines if line["event"] == "finish"} == set(asked)
    assert {line["action"] for line in lines} == {Action.PAUSE.value, Action.RESUME.value}


@pytest.mark.long("two processes with a Spark each")
def test_two_commands_at_once_without_a_run_both_succeed(pipe: Pipe, tmp_path: Path) -> None:
    """Either takes the lease; the other one waits for it, or finds its signal carried out."""
    for table in ("a", "b"):
        pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    file = tmp_path / "pipeline.yml"
    file.write_text(document(pipe))
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "lakeingest", "pause", f"{pipe.database}.{name}", "-c", str(file)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in "abab"
    ]
    said = [command.communicate(timeout=120)[0] for command in commands]
    assert [command.returncode for command in commands] == [0] * 4, said
    assert paused(pipe.config, [TableId(pipe.database, name) for name in "abc"]) == ["a", "b"]
    assert not is_held(pipe.state)
