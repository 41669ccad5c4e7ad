"""Airflow in an environment of its own: it loads the DAGs of a folder as a scheduler does, and runs each once.

pip fetches the pinned packages of airflow.lock once into the cache folder. If it cannot, the tests are skipped by name.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeingest.demo import debian

LOCK = Path(__file__).with_name("airflow.lock")
SECONDS = 900
_PROGRAM = """
import json, sys
from datetime import timedelta
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(dag_folder=sys.argv[1])
found = {"refused": bag.import_errors, "runs": {}}
for name, dag in bag.dags.items():
    [task] = dag.tasks
    task.retry_delay = timedelta(0)  # nothing else of it is changed
    run = dag.test()
    [instance] = run.get_task_instances()
    found["runs"][name] = {"task": task.task_id, "state": str(instance.state), "tries": instance.try_number}
with open(sys.argv[2], "w") as file:
    json.dump(found, file)
"""


@dataclass(frozen=True)
class Ran:
    """The last state of a DAG's only task, and how often it was tried."""

    task: str
    state: str
    tries: int


def run_dags(dags: Path, home: Path, variables: Mapping[str, str]) -> dict[str, Ran]:
    """Run each DAG of the folder once, with its retries but without their delays. Fails if a file is refused.

    `home`: an empty folder for Airflow's own files. `variables`: those of the environment of the tasks.
    """
    python = _installed() / "bin" / "python"
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    found = home / "found.json"
    for words in (["-m", "airflow", "db", "migrate"], ["-c", _PROGRAM, str(dags), str(found)]):
        done = subprocess.run(
            [python, *words],
            cwd=home,
            env={**os.environ, **own, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    document = json.loads(found.read_text())
    assert document["refused"] == {}
    return {name: Ran(**run) for name, run in document["runs"].items()}


def _installed() -> Path:
    """The environment, made where it does not exist yet; skips where pip fails."""
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"airflow-{sys.version_info.major}.{sys.version_info.minor}"
    complete = made / "complete"  # an environment cannot be moved to its place once it is made
    with debian.locked(cache / "airflow.lock"):
        if not complete.exists() or complete.read_text() != LOCK.read_text():
            subprocess.run([sys.executable, "-m", "venv", "--clear", made], check=True, timeout=SECONDS)
            done = subprocess.run(
                [made / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "-r", LOCK],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"Airflow cannot be installed: {done.stderr[-300:]}")
            complete.write_text(LOCK.read_text())
    return made
